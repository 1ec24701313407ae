/// @file
/// What every lane with a thread of its own has to do, whatever its policy.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/overlap/concept.hpp>

namespace gradweave::tests {

/// Finished once `closing` and all of `given` is taken, one a call.
struct queue_work {
  std::atomic<int> given{0};
  std::atomic<int> taken{0};
  std::atomic<bool> closing{false};
  std::atomic<bool> done{false};
  std::atomic<std::thread::id> driver;
  std::mutex changing;  // a lane may look for work once more after the end, while the next step begins

  void begin_step(int more) {
    const std::lock_guard lock(changing);
    closing = done = false;
    given += more;
  }

  lane_status advance() noexcept {
    const std::lock_guard lock(changing);
    driver = std::this_thread::get_id();
    if (taken < given) {
      ++taken;
      return lane_status::pending;
    }
    if (!closing) {
      return lane_status::idle;
    }
    done = true;
    return lane_status::finished;
  }
  void wait() noexcept {}
  bool finished() const noexcept { return done; }
};

/// The lane of `policy` takes work as it comes, before the step ends, on a thread that is not the caller's.
template <overlap_policy Policy>
void check_takes_work_by_itself(const Policy& policy) {
  queue_work work;
  auto lane = policy.make_lane(work);
  for (int step = 0; step < 200; ++step) {
    work.begin_step(2);
    lane.notify();
    while (step == 0 && work.taken < work.given) {  // without drain
      std::this_thread::yield();
    }
    work.closing = true;
    lane.drain();
    CHECK(work.taken == work.given);
  }
  CHECK(work.driver.load() != std::this_thread::get_id());
}

/// It ends without ever having had a step.
template <overlap_policy Policy>
void check_ends_without_a_step(const Policy& policy) {
  queue_work work;
  {
    auto lane = policy.make_lane(work);
  }
  CHECK(work.taken == 0);
}

}  // namespace gradweave::tests
