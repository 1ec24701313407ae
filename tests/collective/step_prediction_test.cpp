#include <gradweave/collective/step_prediction.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>

using namespace gradweave;

namespace {

double second_a_byte(std::size_t bytes) { return static_cast<double>(bytes); }

}  // namespace

TEST_CASE("predict_step: buckets wait for their turn, and for themselves") {
  const std::vector<timed_bucket> buckets{{2, 1}, {3, 2}, {1, 10}};
  // 1 to 3, 3 to 6, 10 to 11
  const step_prediction step = predict_step(buckets, 10, second_a_byte);
  CHECK(step.step_s == 11);
  CHECK(step.communication_s == 6);
  CHECK(step.exposed_s == 1);
  CHECK(step.hidden_share() == doctest::Approx(5.0 / 6));
}

TEST_CASE("predict_step: a bucket held up by those before it counts; nothing is hidden where all come at the end") {
  CHECK(predict_step(std::vector<timed_bucket>{{8, 1}, {4, 5}}, 5, second_a_byte).step_s == 13);
  CHECK(predict_step(std::vector<timed_bucket>{{8, 5}, {4, 5}}, 5, second_a_byte).hidden_share() == 0);
  CHECK(predict_step({}, 5, second_a_byte).step_s == 5);
  CHECK(predict_step({}, 5, second_a_byte).hidden_share() == 1);
}

TEST_CASE("bucket_ends: each bucket ends after its own time, in turn") {
  const std::vector<timed_bucket> buckets = {{2, 1.0}, {1, 1.5}, {1, 9.0}};
  const auto ends = bucket_ends(buckets, [](std::size_t bytes) { return static_cast<double>(bytes); });
  CHECK(ends == std::vector<double>{3, 4, 10});
  CHECK(bucket_ends({}, [](std::size_t) { return 1.0; }).empty());
}

TEST_CASE("predict_step: a bucket outside of the backward pass is refused by number") {
  const std::vector<timed_bucket> late{{1, 1}, {1, 6}};
  CHECK_THROWS_WITH_AS(predict_step(late, 5, second_a_byte), doctest::Contains("bucket 1 is ready at 6"),
                       contract_violation);
  CHECK_THROWS_AS(predict_step({}, -1, second_a_byte), contract_violation);
}

TEST_CASE("even_buckets: hold the whole model, and the last is ready at the end") {
  const auto buckets = even_buckets(10, 4, 5);
  REQUIRE(buckets.size() == 3);
  CHECK(buckets[0].bytes == 4);
  CHECK(buckets[0].ready_s == doctest::Approx(2));
  CHECK(buckets[2].bytes == 2);
  CHECK(buckets[2].ready_s == 5);
  CHECK(even_buckets(0, 4, 5).empty());
  CHECK_THROWS_AS(even_buckets(1, 0, 5), contract_violation);
}
