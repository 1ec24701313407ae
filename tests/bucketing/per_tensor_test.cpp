#include <gradweave/bucketing/per_tensor.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/bucketing/concept.hpp>

namespace gw = gradweave;

TEST_CASE("per_tensor: each slot is a bucket, the one registered last first") {
  const std::vector<gw::slot_size> slots = {
      {gw::element_kind::float32, 4}, {gw::element_kind::float64, 0}, {gw::element_kind::float32, 8}};
  const gw::bucketing::per_tensor policy;
  const gw::bucket_plan expected{{{gw::slot{2}}, {gw::slot{1}}, {gw::slot{0}}}};
  CHECK(policy.plan({slots, {}}) == expected);
  CHECK(policy.plan({{}, {}}).buckets.empty());
}

TEST_CASE("per_tensor: ignores what was observed and never plans anew") {
  const std::vector<gw::slot_size> slots(2);
  const std::vector<gw::ready_event> observed = {{gw::slot{0}, {}}, {gw::slot{1}, {}}};
  const gw::bucketing::per_tensor policy;
  CHECK(policy.plan({slots, observed}) == policy.plan({slots, {}}));
  CHECK(!policy.replans_after(0));
  CHECK(!policy.replans_after(1000));
}
