/// @file
/// Waiting a moment without sleeping: a sleep and its end cost some 20 microseconds, a small collective less.
#pragma once

#include <chrono>
#include <thread>

#include <gradweave/config.hpp>

namespace gradweave {

/// How a rank waits before it sleeps.
class spinning {
 public:
  spinning() = default;

  /// `ranks` of them may spin on this host at once.
  explicit spinning(int ranks) : yields_(std::thread::hardware_concurrency() < static_cast<unsigned>(ranks)) {}

  /// True as soon as `condition` is, false where it is not for a while.
  template <class Condition>
  bool until(Condition&& condition) const {
    const auto began = std::chrono::steady_clock::now();
    do {
      for (int i = 0; i < looks_a_round; ++i) {
        if (condition()) {
          return true;
        }
        if (yields_) {
          std::this_thread::yield();  // whoever is waited for may need this core
        } else {
          pause();
        }
      }
    } while (std::chrono::steady_clock::now() - began < span);
    return false;
  }

 private:
  static constexpr int looks_a_round = 64;
  static constexpr std::chrono::microseconds span{100};

  static void pause() {
#if GRADWEAVE_X86_64
    __builtin_ia32_pause();
#elif GRADWEAVE_AARCH64
    asm volatile("yield");
#endif
  }

  bool yields_ = false;
};

}  // namespace gradweave
