#include <gradweave/overlap/watching_thread.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

namespace {
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
}  // namespace

TEST_CASE("watching_thread: takes work on its own thread as it comes, before the step ends") {
  const testing::watchdog guard("watching_thread");
  queue_work work;
  auto lane = overlap::watching_thread{}.make_lane(work);
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

TEST_CASE("watching_thread: ends without ever having had a step") {
  const testing::watchdog guard("watching_thread without a step");
  queue_work work;
  {
    auto lane = overlap::watching_thread{}.make_lane(work);
  }
  CHECK(work.taken == 0);
}

TEST_CASE("watching_thread: looks again by itself while something is pending") {
  const testing::watchdog guard("watching_thread looks again");
  queue_work work;
  auto lane = overlap::watching_thread{}.make_lane(work);
  work.begin_step(5);
  lane.notify();  // once
  while (work.taken < 5) {
    std::this_thread::yield();
  }
  work.closing = true;
  lane.drain();
}
