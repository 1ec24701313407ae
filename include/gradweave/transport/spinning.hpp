/// @file
/// Waiting a moment without sleeping: a sleep and its end cost more than a small collective.
#pragma once

#include <chrono>
#include <thread>

#include <gradweave/config.hpp>

namespace gradweave {

namespace detail {

inline void pause_processor() {
#if GRADWEAVE_X86_64
  __builtin_ia32_pause();
#elif GRADWEAVE_AARCH64
  asm volatile("yield");
#endif
}

}  // namespace detail

/// True as soon as `condition` is; false where it is not for a while, or where somebody else needs the core.
///
/// It looks again and again for about a microsecond, then gives the core away before each look: what is waited for may be
/// the work of a thread that has none. How long that takes tells whether threads outnumber cores: others that wait like
/// this one give it back at once, one that computes does not, and then sleeping is better, since a thread that wakes is
/// preferred to one that only yielded.
template <class Condition>
bool spin_until(Condition&& condition) {
  using std::chrono::microseconds;
  constexpr int looks = 64;
  for (int i = 0; i < looks; ++i) {
    if (condition()) {
      return true;
    }
    detail::pause_processor();
  }
  constexpr microseconds span{100};
  constexpr microseconds yield_max{30};
  const auto began = std::chrono::steady_clock::now();
  auto before = began;
  while (before - began < span) {
    std::this_thread::yield();
    if (condition()) {
      return true;
    }
    const auto now = std::chrono::steady_clock::now();
    if (now - before > yield_max) {
      return false;
    }
    before = now;
  }
  return false;
}

}  // namespace gradweave
