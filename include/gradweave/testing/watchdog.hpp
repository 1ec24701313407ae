/// @file
/// A watchdog: a test that hangs is ended and named, instead of blocking whoever waits for its result.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace gradweave::testing {

/// Ends the process, by std::abort, where it lives longer than its limit. The environment variable
/// GRADWEAVE_TEST_TIMEOUT_S is the number of seconds that the usual limit of 60 stands for: 600 makes every limit ten
/// times as long, for a debugger or a sanitizer.
class watchdog {
 public:
  static constexpr std::chrono::seconds usual_limit{60};

  explicit watchdog(std::string name, std::chrono::milliseconds limit = usual_limit)
      : name_(std::move(name)), limit_(scaled(limit)), thread_([this] { watch(); }) {}

  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;

  ~watchdog() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

  /// `limit` as the environment scales it; a variable that is no positive number changes nothing.
  static std::chrono::milliseconds scaled(std::chrono::milliseconds limit) {
    const char* text = std::getenv("GRADWEAVE_TEST_TIMEOUT_S");
    const double seconds = text == nullptr ? 0 : std::strtod(text, nullptr);
    constexpr double seconds_max = 1e6;
    if (!(seconds > 0) || seconds > seconds_max) {
      return limit;
    }
    const double factor = seconds / static_cast<double>(usual_limit.count());
    return std::chrono::milliseconds(
        static_cast<std::chrono::milliseconds::rep>(static_cast<double>(limit.count()) * factor));
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    if (!ended_.wait_for(lock, limit_, [this] { return over_; })) {
      std::fprintf(stderr, "\nwatchdog: '%s' is not over after %lld ms; the process is ended\n", name_.c_str(),
                   static_cast<long long>(limit_.count()));
      std::fflush(stderr);
      std::abort();
    }
  }

  std::string name_;
  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradweave::testing
