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

TEST_CASE("sync_statistics: adds up every number") {
  const sync_statistics step{1, 2ns, 3ns, 4ns, 5ns, 6ns, 7ns, 8ns, 9, 10, 11};
  sync_statistics totals = step;
  totals.add(step);
  CHECK(totals.steps == 2);
  CHECK(totals.step_time == 4ns);
  CHECK(totals.forward_time == 6ns);
  CHECK(totals.backward_time == 8ns);
  CHECK(totals.communication_time == 10ns);
  CHECK(totals.exposed_time == 12ns);
  CHECK(totals.encode_time == 14ns);
  CHECK(totals.decode_time == 16ns);
  CHECK(totals.bytes_raw == 18);
  CHECK(totals.bytes_on_wire == 20);
  CHECK(totals.non_finite == 22);
}

TEST_CASE("step_result: is finite until a value was not") {
  CHECK(step_result{3, 0}.finite());
  CHECK_FALSE(step_result{3, 1}.finite());
}
