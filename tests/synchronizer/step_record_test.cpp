#include <gradweave/synchronizer/step_record.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("record_fault: ranks that ended different steps or plans, or accumulated differently, are told apart") {
  std::vector<step_record> records(3);
  CHECK_FALSE(record_fault(records));
  records[2].step = 4;
  REQUIRE(record_fault(records));
  CHECK(record_fault(records)->rank == 2);
  CHECK(record_fault(records)->detail.find("numbers: 0 on rank 0, 4 on rank 2") != std::string::npos);
  records[2] = {};
  records[1].plan_version = 1;
  CHECK(record_fault(records)->rank == 1);
  records[1] = {};
  records[1].accumulated = 9;
  CHECK(record_fault(records)->detail.find("accumulated steps before it: 0 on rank 0, 9 on rank 1") !=
        std::string::npos);
  records[1] = {};
  records[2].loss_scale = 0.5F;
  CHECK(record_fault(records)->rank == 2);
  records[2].has_data = 0;  // who has no data has no loss
  CHECK_FALSE(record_fault(records));
}

TEST_CASE("outcome_of: adds up what ranks saw, and says whether they used the same slots") {
  std::vector<step_record> records(3);
  records[0].non_finite = 5;
  records[2].non_finite = 2;
  CHECK(outcome_of(records).non_finite == 7);
  CHECK_FALSE(outcome_of(records).slots_differ);
  CHECK(outcome_of(records).live == 0);
  records[1].unused_digest = 1;
  CHECK(outcome_of(records).slots_differ);
  records[1].has_data = 0;  // it used nothing, which is known
  CHECK_FALSE(outcome_of(records).slots_differ);
  records[0].has_data = 0;
  records[2].unused_digest = 7;  // which slots these are the ranks without data have to ask
  CHECK(outcome_of(records).slots_differ);
  CHECK(outcome_of(records).live == 2);
  records[2].has_data = 0;
  CHECK(outcome_of(records).live == -1);
  records[1].step = 1;
  CHECK_THROWS_AS(outcome_of(records), sync_error);
}
