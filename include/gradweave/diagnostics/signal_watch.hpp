/// @file
/// SIGUSR1 asks a process where it is, also one that hangs.
#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace gradweave {

namespace detail {

/// The one thing that is global, since a signal's handler knows nothing else: how often it came.
inline std::atomic<std::uint32_t> signals_seen{0};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a signal's handler may touch nothing else");

inline void count_signal(int) { signals_seen.fetch_add(1, std::memory_order_relaxed); }

}  // namespace detail

/// Calls `told()` on a thread of its own within a fifth of a second after a SIGUSR1 has come: the handler only counts, and
/// a lane that waits for another rank sleeps for minutes. Where the program handles that signal itself, it keeps doing so.
/// The handler stays once this is gone: without it the next signal would end the process.
class signal_watch {
 public:
  explicit signal_watch(std::function<void()> told)
      : seen_(detail::signals_seen.load()), told_(std::move(told)), thread_([this] { run(); }) {
    struct sigaction present{};
    if (::sigaction(SIGUSR1, nullptr, &present) == 0 && present.sa_handler == SIG_DFL) {
      struct sigaction ours{};
      ours.sa_handler = detail::count_signal;
      ours.sa_flags = SA_RESTART;
      ::sigaction(SIGUSR1, &ours, nullptr);
    }
  }
  signal_watch(const signal_watch&) = delete;
  signal_watch& operator=(const signal_watch&) = delete;

  ~signal_watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, std::chrono::milliseconds(200), [this] { return over_; })) {
      if (const std::uint32_t now = detail::signals_seen.load(std::memory_order_relaxed); now != seen_) {
        seen_ = now;
        told_();
      }
    }
  }

  std::uint32_t seen_;
  std::function<void()> told_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradweave
