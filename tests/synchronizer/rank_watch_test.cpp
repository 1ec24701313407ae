#include <gradweave/synchronizer/rank_watch.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;
using namespace std::chrono_literals;

TEST_CASE("rank_watch: names who ended its backward pass last, or else whose buckets came last") {
  rank_watch watch(4);
  std::vector<step_record> records(4);
  for (step_record& each : records) {
    each.computed_ns = 10'000'000;
    each.entered_us = 12'000;
    each.backward_us = 7'000;
  }
  CHECK(watch.add(records).behind == 0ns);
  records[2].computed_ns = 15'000'000;
  records[2].backward_us = 12'000;
  records[1].entered_us = 12'100;
  slowest_rank last = watch.add(records);
  CHECK(last.rank == 2);
  CHECK(last.cause == late_in::compute);
  CHECK(last.behind == 5ms);
  records[1].entered_us = 20'000;
  last = watch.add(records);
  CHECK(last.rank == 1);
  CHECK(last.cause == late_in::network);
  CHECK(last.behind == 8ms);
  CHECK(watch.rows()[2].late_in_compute == 1);
  CHECK(watch.rows()[2].behind == 5ms);
  CHECK(watch.rows()[2].backward_time == 31ms);
  CHECK(watch.rows()[1].late_in_network == 1);
  CHECK(watch.rows()[3].late_in_compute + watch.rows()[3].late_in_network == 0);
}

TEST_CASE("rank_watch: of two ranks the median is the one that was not late") {
  rank_watch watch(2);
  std::vector<step_record> records(2);
  records[0].computed_ns = 5;
  CHECK(watch.add(records).rank == 0);
  CHECK(watch.rows()[0].behind == 5ns);
  records[1].computed_ns = UINT64_MAX;  // whatever a rank says
  CHECK(watch.add(records).behind == 1h);
}
