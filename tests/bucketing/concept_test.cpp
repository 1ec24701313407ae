#include <gradweave/bucketing/concept.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_bucketing<gt::bucketing_archetype>());

namespace {

using base = gt::bucketing_archetype;

struct is_fixed : base {
  using base::base;
  is_fixed(const is_fixed&) = delete;
};
static_assert(!gw::policy_value<is_fixed> && !gw::bucketing_policy<is_fixed>);

struct does_not_compare : base {
  using base::base;
  friend bool operator==(const does_not_compare&, const does_not_compare&) = delete;
};
static_assert(!gw::policy_value<does_not_compare> && !gw::bucketing_policy<does_not_compare>);

struct does_not_describe : base {
  using base::base;
  void describe() const {}
};
static_assert(!gw::describes_itself<does_not_describe> && !gw::bucketing_policy<does_not_describe>);

struct plan_is_not_const : base {
  using base::base;
  gw::bucket_plan plan(const gw::bucketing_input&) { return {}; }
};
static_assert(!gw::bucketing_makes_plan<plan_is_not_const> && !gw::bucketing_policy<plan_is_not_const>);

struct plan_is_a_list : base {
  using base::base;
  std::vector<std::vector<gw::slot>> plan(const gw::bucketing_input&) const { return {}; }
};
static_assert(!gw::bucketing_makes_plan<plan_is_a_list> && !gw::bucketing_policy<plan_is_a_list>);

struct replans_without_a_step : base {
  using base::base;
  bool replans_after() const { return false; }
};
static_assert(!gw::bucketing_replans<replans_without_a_step> && !gw::bucketing_policy<replans_without_a_step>);

struct replans_returns_a_number : base {
  using base::base;
  int replans_after(std::uint64_t) const { return 0; }
};
static_assert(!gw::bucketing_replans<replans_returns_a_number> && !gw::bucketing_policy<replans_returns_a_number>);

// Listening to the environment is optional.
static_assert(!gw::environment_aware<base>);
struct listens : base {
  using base::base;
  listens with_environment() const { return *this; }
};
static_assert(gw::environment_aware<listens>);
struct turns_into_its_base : base {
  using base::base;
  base with_environment() const { return *this; }
};
static_assert(!gw::environment_aware<turns_into_its_base>);

gw::bucket_plan plan_of(const std::vector<std::vector<std::uint32_t>>& buckets) {
  gw::bucket_plan plan;
  for (const auto& bucket : buckets) {
    plan.buckets.emplace_back();
    for (const std::uint32_t index : bucket) {
      plan.buckets.back().push_back({index});
    }
  }
  return plan;
}

std::string fault_of(const std::vector<std::vector<std::uint32_t>>& buckets) {
  const std::vector<gw::slot_size> slots = {
      {gw::element_kind::float32, 4}, {gw::element_kind::float32, 0}, {gw::element_kind::float64, 8}};
  return gw::plan_fault(plan_of(buckets), slots);
}

/// Of 3 and of fewer than 2 granules.
const std::vector<gw::slot_size> with_large = {{gw::element_kind::float32, 4 * (3 * 4096 + 100)},
                                               {gw::element_kind::float32, 4 * 8191}};

}  // namespace

TEST_CASE("plan_fault: says what is wrong with a plan, and nothing of a right one") {
  CHECK(fault_of({{0, 1}, {2}}) == "");
  CHECK(fault_of({{2}, {1}, {0}}) == "");
  CHECK(gw::plan_fault({}, {}) == "");
  CHECK(fault_of({{0, 1}, {}, {2}}) == "bucket 1 is empty");
  CHECK(fault_of({{0, 1}, {3}}) == "bucket 1 names slot 3 of 3");
  CHECK(fault_of({{0, 1, 0}, {2}}) == "bucket 0 repeats slot 0, which is too small to be cut");
  CHECK(fault_of({{0, 1}, {2}, {1}}) == "bucket 2 repeats slot 1, which is too small to be cut");
  CHECK(fault_of({{0, 1, 2}}) == "bucket 0 mixes element kinds");
  CHECK(fault_of({{0}}) == "2 slots are in no bucket");
  CHECK(fault_of({}) == "3 slots are in no bucket");
}

TEST_CASE("plan_fault: a slot is listed as often as it can be cut, at most") {
  const auto fault = [](const std::vector<std::vector<std::uint32_t>>& buckets) {
    return gw::plan_fault(plan_of(buckets), with_large);
  };
  CHECK(fault({{0}, {1}, {0}}) == "");
  CHECK(fault({{0, 1, 0}, {0}}) == "");
  CHECK(fault({{0, 0}, {1}, {0}, {0}}) == "bucket 3 repeats slot 0, which can be cut into 3 slices, not more");
  CHECK(fault({{0}, {1}, {1}}) == "bucket 2 repeats slot 1, which is too small to be cut");
  CHECK(fault({{0}, {0}, {0}}) == "1 slots are in no bucket");
}

TEST_CASE("for_each_slice: tells what each bucket holds; neighbours are one") {
  using seen = std::vector<std::vector<std::size_t>>;
  const auto slices = [](const std::vector<std::vector<std::uint32_t>>& buckets) {
    seen told;
    gw::for_each_slice(plan_of(buckets), with_large, [&](std::size_t bucket, gw::slot which, gw::slot_slice part) {
      told.push_back({bucket, which.index, part.begin, part.elements});
    });
    return told;
  };
  CHECK(slices({{1, 0}}) == seen{{0, 1, 0, 8191}, {0, 0, 0, 12'388}});
  CHECK(slices({{0}, {1}, {0, 0}}) == seen{{0, 0, 0, 4096}, {1, 1, 0, 8191}, {2, 0, 4096, 8292}});
  CHECK(slices({{0, 1, 0}}) == seen{{0, 0, 0, 4096}, {0, 1, 0, 8191}, {0, 0, 4096, 8292}});
}
