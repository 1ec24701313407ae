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

struct core_yield {
  void operator()() const { std::this_thread::yield(); }
};

}  // namespace detail

/// Looks for something again and again, as long as that costs less than sleeping. One a thread that waits.
///
/// It looks for about a microsecond, then gives the core away before each look: what is waited for may be the work of a
/// thread that has none. How long a yield takes tells how many threads can run beside how many cores: others that wait
/// like this one, however many, give the core back at once; one that computes keeps it for its whole slice. Then sleeping
/// is better, since a thread that wakes is preferred to one that only yielded, and it stays better for a while: so long
/// that slices lost to yields are a small part of all time.
template <class Clock = std::chrono::steady_clock, class Yield = detail::core_yield>
class basic_spinner {
 public:
  explicit basic_spinner(Yield yield = {}) : yield_(yield) {}

  /// True as soon as `condition` is; false where it is not for a while, or where somebody else needs the core.
  template <class Condition>
  bool until(Condition&& condition) {
    const auto began = Clock::now();
    auto before = began;
    do {
      for (int looks = 0; looks < looks_between_times; ++looks) {
        if (condition()) {
          return true;
        }
        detail::pause_processor();
      }
      before = Clock::now();
    } while (before - began < busy);
    while (before - began < span && before >= crowded_until_) {
      yield_();
      const bool holds = condition();
      const auto now = Clock::now();
      if (now - before > slice_min) {
        crowded_until_ = now + crowded_slices * (now - before);
      }
      if (holds || now - before > yield_max) {
        return holds;
      }
      before = now;
    }
    return false;
  }

 private:
  using microseconds = std::chrono::microseconds;

  static constexpr int looks_between_times = 8;
  static constexpr microseconds busy{1};
  static constexpr microseconds span{100};
  static constexpr microseconds yield_max{30};   ///< others that wait have had their turn by then
  static constexpr microseconds slice_min{200};  ///< longer than a turn of those that wait, shorter than a slice
  static constexpr int crowded_slices = 32;      ///< at most a 32nd of all time is lost to yields that cost a slice

  Yield yield_;
  typename Clock::time_point crowded_until_{};
};

using spinner = basic_spinner<>;

}  // namespace gradweave
