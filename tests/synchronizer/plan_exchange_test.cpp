#include <gradweave/synchronizer/plan_exchange.hpp>

#include <mutex>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("encode_plan: plans survive the way through numbers") {
  const bucket_plan plan{{{slot{3}, slot{0}}, {slot{1}}, {slot{2}, slot{4}}}};
  CHECK(decode_plan(encode_plan(plan)) == plan);
  CHECK(encode_plan(plan).size() == 5);
  CHECK(decode_plan(encode_plan({})) == bucket_plan{});
  const bucket_plan in_slices{{{slot{1}}, {slot{0}, slot{1}, slot{1}}, {slot{1}}}};
  CHECK(decode_plan(encode_plan(in_slices)) == in_slices);
}

TEST_CASE("agree_on_plan: what rank 0 observed decides") {
  std::mutex checking;
  backend::run_loopback(3, [&](backend::loopback backend) {
    const std::vector<slot_size> sizes(4, {element_kind::float32, 100});
    const auto plan = agree_on_plan(
        backend, bucketing::fixed_bytes{{backend.rank() == 0 ? std::size_t{150} : std::size_t{1}, 150}}, sizes, {});
    const std::lock_guard lock(checking);
    CHECK(plan.buckets.size() == 2);
  });
}
