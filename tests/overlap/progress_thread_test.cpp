#include <gradweave/overlap/progress_thread.hpp>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/queue_work.hpp"

using namespace gradweave;

TEST_CASE("progress_thread: takes work on its own thread as it comes, before the step ends") {
  const testing::watchdog guard("progress_thread");
  tests::check_takes_work_by_itself(overlap::progress_thread{});
}

TEST_CASE("progress_thread: ends without ever having had a step") {
  const testing::watchdog guard("progress_thread without a step");
  tests::check_ends_without_a_step(overlap::progress_thread{});
}
