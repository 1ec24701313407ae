#include <gradweave/overlap/watching_thread.hpp>

#include <thread>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/queue_work.hpp"

using namespace gradweave;

TEST_CASE("watching_thread: takes work on its own thread as it comes, before the step ends") {
  const testing::watchdog guard("watching_thread");
  tests::check_takes_work_by_itself(overlap::watching_thread{});
}

TEST_CASE("watching_thread: ends without ever having had a step") {
  const testing::watchdog guard("watching_thread without a step");
  tests::check_ends_without_a_step(overlap::watching_thread{});
}

TEST_CASE("watching_thread: looks again by itself while something is pending") {
  const testing::watchdog guard("watching_thread looks again");
  tests::queue_work work;
  auto lane = overlap::watching_thread{}.make_lane(work);
  work.begin_step(5);
  lane.notify();  // once
  while (work.taken < 5) {
    std::this_thread::yield();
  }
  work.closing = true;
  lane.drain();
}
