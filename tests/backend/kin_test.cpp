#include <gradweave/backend/kin.hpp>

#include <memory>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

struct heard {
  std::vector<failure> stories;
  void tell(failure story) { stories.push_back(std::move(story)); }
};

}  // namespace

TEST_CASE("kin: a failure is told once to each other group, with the culprit's number there") {
  backend::kin<heard> all;
  const auto job = std::make_shared<heard>(), row = std::make_shared<heard>(), column = std::make_shared<heard>();
  all.add(job, {0, 1, 2, 3});
  CHECK(all.spread(*job, {errc::aborted, 2, 7, -1, {}, "why"}).detail == "why");  // there are no groups

  all.add(row, {3, 2});
  all.add(column, {1, 3});
  const failure told = all.spread(*row, {errc::aborted, 1, 7, 4, {"weight"}, "why"});
  CHECK(to_string(told) ==
        "rank 1, step 7, bucket 4 (slots 'weight'): rank 2 of the job, in the group of ranks 3 and 2: why");
  CHECK(row->stories.empty());
  REQUIRE(job->stories.size() == 1);
  CHECK(job->stories[0].rank == 2);
  REQUIRE(column->stories.size() == 1);
  CHECK(column->stories[0].rank == -1);  // not one of its ranks: the sentence says who
  CHECK(column->stories[0].detail == told.detail);
  CHECK(column->stories[0].slots == told.slots);
}

TEST_CASE("kin: a story that came from another group keeps its words, and groups that have ended are not told") {
  backend::kin<heard> all;
  auto job = std::make_shared<heard>();
  const auto row = std::make_shared<heard>(), column = std::make_shared<heard>();
  all.add(job, {0, 1, 2, 3});
  all.add(row, {0, 1});
  all.add(column, {0, 2});
  job.reset();
  const char* const words = "rank 1 of the job, in the group of ranks 1 and 3: why";
  CHECK(all.spread(*row, {errc::aborted, 1, 7, -1, {}, words}).detail == words);
  CHECK(all.spread(*column, {errc::aborted, -1, 7, -1, {}, words}).detail == words);
  CHECK(column->stories.size() == 1);
  CHECK(row->stories.size() == 1);
  CHECK(all.spread(*row, {errc::timed_out, 0, 7, -1, {}, "late"}).detail ==
        "rank 0 of the job, in the group of ranks 0 and 1: late");
}
