#include <gradweave/statistics.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("sync_statistics: the exposed share is a part of the step, and none before the first") {
  sync_statistics totals;
  CHECK(totals.exposed_share() == 0);
  totals.step_time = 200ms;
  totals.exposed_time = 50ms;
  CHECK(totals.exposed_share() == doctest::Approx(0.25));
}

TEST_CASE("step_result: is finite until a value was not") {
  CHECK(step_result{3, 0}.finite());
  CHECK_FALSE(step_result{3, 1}.finite());
}
