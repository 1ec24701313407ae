#include <gradweave/bucketing/merge_optimal.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/collective/step_prediction.hpp>
#include <gradweave/testing/bucketing_conformance.hpp>

#include "tests/support/plans.hpp"

namespace gw = gradweave;
namespace gt = gradweave::testing;
using gw::element_kind;
using gw::bucketing::collective_cost;
using gw::bucketing::merge_optimal;
using gw::tests::indices;

namespace {

/// Slots, when they become ready in order of their numbers, and what a bucket costs.
struct problem {
  std::vector<gw::slot_size> slots;
  std::vector<gw::ready_event> observed;
  collective_cost cost;
  std::size_t bucket_bytes_max;

  problem(std::uint64_t seed, std::size_t count, std::size_t kinds) {
    std::mt19937_64 random(seed);
    std::chrono::nanoseconds now{0};
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto kind = static_cast<element_kind>(1 + random() % kinds);
      const std::size_t elements = random() % 5 == 0 ? 0 : random() % (std::size_t{1} << (1 + random() % 18));
      slots.push_back({kind, 8 * elements});
      now += std::chrono::nanoseconds(random() % 4 == 0 ? 0 : random() % 100'000);
      observed.push_back({{i}, now});
    }
    cost.alpha_s = static_cast<double>(random() % 200) * 1e-6;
    cost.beta_s_per_byte = static_cast<double>(random() % 100) * 1e-11;
    bucket_bytes_max = random() % 2 == 0 ? SIZE_MAX : 1 + random() % 1'000'000;
  }

  merge_optimal policy() const { return {.caps = {.bucket_bytes_max = bucket_bytes_max}, .cost = cost}; }

  /// When communication ends: by the simulation of steps, which knows nothing of how the plan came about.
  double end_of(const gw::bucket_plan& plan) const {
    std::vector<gw::timed_bucket> buckets;
    for (const auto& members : plan.buckets) {
      buckets.emplace_back();
      for (const gw::slot which : members) {
        buckets.back().bytes += slots[which.index].bytes;
        buckets.back().ready_s =
            std::max(buckets.back().ready_s, std::chrono::duration<double>(observed[which.index].when).count());
      }
    }
    const double backward_s = std::chrono::duration<double>(observed.back().when).count();
    return gw::predict_step(buckets, backward_s, [&](std::size_t bytes) { return cost.seconds(bytes); }).step_s;
  }

  bool respects_cap(const gw::bucket_plan& plan) const {
    return std::ranges::all_of(plan.buckets, [&](const auto& members) {
      std::size_t bytes = 0;
      return std::ranges::all_of(members, [&](gw::slot which) {
        const bool open = bytes < bucket_bytes_max;
        bytes += slots[which.index].bytes;
        return open;
      });
    });
  }

  /// The buckets that end after the slots whose bits are set, and after the last of each kind.
  gw::bucket_plan cut(std::uint32_t ends) const {
    gw::bucket_plan plan;
    std::vector<std::vector<gw::slot>> open(5);
    for (std::uint32_t i = 0; i < slots.size(); ++i) {
      auto& members = open[static_cast<std::size_t>(slots[i].kind)];
      members.push_back({i});
      const bool last = std::none_of(slots.begin() + i + 1, slots.end(),
                                     [&](const gw::slot_size& later) { return later.kind == slots[i].kind; });
      if (last || (ends >> i & 1U) != 0) {
        plan.buckets.push_back(std::exchange(members, {}));
      }
    }
    return plan;
  }

  /// The least end of all allowed cuts of `changed` slots, the others cut as in `ends`.
  double best_end(std::uint32_t changed, std::uint32_t ends) const {
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t subset = changed;; subset = (subset - 1) & changed) {
      const gw::bucket_plan plan = cut(subset | (ends & ~changed));
      if (respects_cap(plan)) {
        best = std::min(best, end_of(plan));
      }
      if (subset == 0) {
        return best;
      }
    }
  }
};

}  // namespace

TEST_CASE("merge_optimal: of one kind, no other merging ends earlier, of all that there are") {
  std::size_t neither_extreme = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    const problem given(seed, 1 + seed % 12, 1);
    const gw::bucket_plan plan = given.policy().plan({given.slots, given.observed});
    REQUIRE(gw::plan_fault(plan, given.slots) == "");
    REQUIRE(given.respects_cap(plan));
    const auto all = static_cast<std::uint32_t>((1U << given.slots.size()) - 1);
    REQUIRE(given.end_of(plan) == doctest::Approx(given.best_end(all, 0)).epsilon(1e-12));
    neither_extreme += plan.buckets.size() != 1 && plan.buckets.size() != given.slots.size() ? 1 : 0;
  }
  CHECK(neither_extreme > 40);  // the problems are no trivial ones
}

TEST_CASE("merge_optimal: of two kinds, no other merging of either ends earlier") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    const problem given(seed, 2 + seed % 10, 2);
    const gw::bucket_plan plan = given.policy().plan({given.slots, given.observed});
    REQUIRE(gw::plan_fault(plan, given.slots) == "");
    REQUIRE(given.respects_cap(plan));
    std::uint32_t ends = 0;
    for (const auto& members : plan.buckets) {
      ends |= 1U << members.back().index;
    }
    REQUIRE(plan == given.cut(ends));
    for (const element_kind kind : {element_kind::float32, element_kind::float64}) {
      std::uint32_t of_kind = 0;
      for (std::size_t i = 0; i < given.slots.size(); ++i) {
        of_kind |= given.slots[i].kind == kind ? 1U << i : 0;
      }
      REQUIRE(given.end_of(plan) <= given.best_end(of_kind, ends) * (1 + 1e-12));
    }
  }
}

TEST_CASE("merge_optimal: begins as fixed_bytes, plans anew after two steps, and what was never ready goes last") {
  const std::vector<gw::slot_size> slots(5, {element_kind::float32, 8});
  const merge_optimal policy{.caps = {16, 16}, .cost = {.alpha_s = 1, .beta_s_per_byte = 1e-3}};
  CHECK(policy.plan({slots, {}}) == gw::bucketing::fixed_bytes{{16, 16}}.plan({slots, {}}));
  CHECK(policy.replans_after(0));
  CHECK(policy.replans_after(1));
  CHECK_FALSE(policy.replans_after(2));
  using std::chrono::seconds;
  const std::vector<gw::ready_event> observed{{{2}, seconds(1)}, {{0}, seconds(10)}};
  CHECK(indices(policy.plan({slots, observed})) == std::vector<std::vector<std::uint32_t>>{{2}, {0, 4}, {3, 1}});
  CHECK(merge_optimal{.caps = {0, 0}}.plan({slots, observed}).buckets.size() == 5);
  merge_optimal wrong = policy;
  wrong.cost.alpha_s = -1;
  CHECK_THROWS_AS(static_cast<void>(wrong.plan({slots, {}})), gw::contract_violation);
}

TEST_CASE("merge_optimal: passes the kit, and says what it is") {
  const auto report = gt::check_bucketing(merge_optimal{});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  const auto told = gt::check_description(
      {merge_optimal{}, {{.bucket_bytes_max = 1}, {}}, {{}, {.alpha_s = 1}}, {{}, {.beta_s_per_byte = 1}}});
  CHECK_MESSAGE(told.passed(), gt::to_string(told));
}
