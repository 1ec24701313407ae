#include <gradweave/bucketing/ready_order.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>

#include "tests/support/plans.hpp"

namespace gw = gradweave;
using gw::element_kind;
using gw::bucketing::fixed_bytes;
using gw::bucketing::ready_order;
using gw::tests::indices;

namespace {

std::vector<gw::ready_event> observed(std::initializer_list<std::uint32_t> order) {
  std::vector<gw::ready_event> events;
  for (const std::uint32_t index : order) {
    events.push_back({gw::slot{index}, std::chrono::microseconds(events.size())});
  }
  return events;
}

std::vector<std::size_t> bucket_bytes(const gw::bucket_plan& plan, const std::vector<gw::slot_size>& slots) {
  std::vector<std::size_t> bytes;
  for (const auto& bucket : plan.buckets) {
    bytes.push_back(0);
    for (const gw::slot each : bucket) {
      bytes.back() += slots[each.index].bytes;
    }
  }
  return bytes;
}

using plan_of = std::vector<std::vector<std::uint32_t>>;

}  // namespace

// Eight layers of 512 x 512 weights with 512 biases: the plan that PyTorch's DistributedDataParallel makes of it.
TEST_CASE("ready_order: eight linear layers under a cap of 2 MiB") {
  std::vector<gw::slot_size> slots;
  std::vector<gw::ready_event> events;
  for (std::uint32_t layer = 0; layer < 8; ++layer) {
    slots.push_back({element_kind::float32, 512 * 512 * 4});
    slots.push_back({element_kind::float32, 512 * 4});
  }
  for (std::uint32_t i = 16; i-- > 0;) {
    events.push_back({gw::slot{i}, std::chrono::microseconds(16 - i)});
  }
  const ready_order policy{{.bucket_bytes_max = std::size_t{2} << 20}};
  const gw::bucket_plan plan = policy.plan({slots, events});
  CHECK(bucket_bytes(plan, slots) == std::vector<std::size_t>{1050624, 2101248, 2101248, 2101248, 1050624});
  CHECK(indices(plan) == plan_of{{15, 14}, {13, 12, 11, 10}, {9, 8, 7, 6}, {5, 4, 3, 2}, {1, 0}});
  CHECK(policy.plan({slots, {}}) == plan);  // the order of registration, reversed, is the same here
}

TEST_CASE("ready_order: begins as fixed_bytes and fills buckets in the order that was observed") {
  const std::vector<gw::slot_size> slots(5, {element_kind::float32, 8});
  const ready_order policy{{16, 16}};
  CHECK(policy.plan({slots, {}}) == fixed_bytes{{16, 16}}.plan({slots, {}}));
  CHECK(indices(policy.plan({slots, observed({2, 0, 4, 1, 3})})) == plan_of{{2, 0}, {4, 1}, {3}});
}

TEST_CASE("ready_order: a slot that never became ready goes last") {
  const std::vector<gw::slot_size> slots(5, {element_kind::float32, 8});
  CHECK(indices(ready_order{{16, 16}}.plan({slots, observed({2, 0})})) == plan_of{{2, 0}, {4, 3}, {1}});
  CHECK(indices(ready_order{{16, 16}}.plan({slots, observed({1, 1, 3})})) == plan_of{{1, 3}, {4, 2}, {0}});
}

TEST_CASE("ready_order: kinds have buckets of their own") {
  const std::vector<gw::slot_size> slots = {
      {element_kind::float32, 8}, {element_kind::float64, 8}, {element_kind::float32, 8}, {element_kind::float64, 8}};
  CHECK(indices(ready_order{{16, 16}}.plan({slots, observed({0, 1, 2, 3})})) == plan_of{{0, 2}, {1, 3}});
  CHECK(indices(ready_order{{16, 8}}.plan({slots, observed({0, 1, 2, 3})})) == plan_of{{0}, {1}, {2}, {3}});
}

TEST_CASE("ready_order: plans anew once, after the first step") {
  CHECK(ready_order{}.replans_after(0));
  CHECK(!ready_order{}.replans_after(1));
  CHECK(!ready_order{}.replans_after(UINT64_MAX));
}
