#include <gradweave/bucketing/needed_first.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/testing/bucketing_conformance.hpp>

#include "tests/support/plans.hpp"

namespace gw = gradweave;
namespace gt = gradweave::testing;
using gw::element_kind;
using gw::bucketing::needed_first;
using gw::bucketing::ready_order;
using gw::tests::indices;

namespace {

using plan_of = std::vector<std::vector<std::uint32_t>>;

std::vector<gw::ready_event> ready_at(const std::vector<std::pair<std::uint32_t, int>>& slots_and_ms) {
  std::vector<gw::ready_event> events;
  for (const auto& [index, ms] : slots_and_ms) {
    events.push_back({gw::slot{index}, std::chrono::milliseconds(ms)});
  }
  return events;
}

/// A bucket a slot, each of which takes a millisecond.
const needed_first singly{{.bucket_bytes_max = 1}, {.alpha_s = 1e-3, .beta_s_per_byte = 0}};

/// Replays a plan: at each launch no bucket that is complete is needed before the one that is launched, and the lane is
/// never idle while one is complete. When the lane is done, in seconds; -1 where that is not so.
double replay(const gw::bucket_plan& plan, const gw::bucketing_input& input, const needed_first& policy) {
  std::vector<double> ready_s(input.slots.size());
  for (const gw::ready_event& event : input.observed) {
    ready_s[event.which.index] = std::chrono::duration<double>(event.when).count();
  }
  struct job {
    double complete_s = 0;
    double seconds = 0;
    std::uint32_t first = UINT32_MAX;
  };
  std::vector<job> jobs;
  for (const auto& members : plan.buckets) {
    std::size_t bytes = 0;
    job& each = jobs.emplace_back();
    for (const gw::slot which : members) {
      each.complete_s = std::max(each.complete_s, ready_s[which.index]);
      each.first = std::min(each.first, which.index);
      bytes += input.slots[which.index].bytes;
    }
    each.seconds = policy.cost.seconds(bytes);
  }
  double now = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto earliest = std::min_element(jobs.begin() + static_cast<std::ptrdiff_t>(i), jobs.end(),
                                           [](const job& a, const job& b) { return a.complete_s < b.complete_s; });
    now = std::max(now, earliest->complete_s);
    const bool passed_over =
        std::any_of(jobs.begin() + static_cast<std::ptrdiff_t>(i), jobs.end(),
                    [&](const job& each) { return each.complete_s <= now && each.first < jobs[i].first; });
    if (passed_over || jobs[i].complete_s > now) {
      return -1;
    }
    now += jobs[i].seconds;
  }
  return now;
}

}  // namespace

TEST_CASE("needed_first: what is needed first overtakes what is complete and waits") {
  const std::vector<gw::slot_size> slots(4, {element_kind::float32, 8});
  CHECK(indices(singly.plan({slots, ready_at({{3, 1}, {2, 1}, {1, 1}, {0, 1}})})) == plan_of{{0}, {1}, {2}, {3}});
  // Slot 3 travels while the others become ready; what travels is not overtaken.
  CHECK(indices(singly.plan({slots, ready_at({{3, 0}, {2, 0}, {1, 1}, {0, 1}})})) == plan_of{{2}, {0}, {1}, {3}});
}

TEST_CASE("needed_first: a lane that is never behind launches in the order of readiness") {
  const std::vector<gw::slot_size> slots(3, {element_kind::float32, 8});
  CHECK(indices(singly.plan({slots, ready_at({{2, 0}, {1, 5}, {0, 10}})})) == plan_of{{2}, {1}, {0}});
}

TEST_CASE("needed_first: fills the buckets of ready_order, and only launches them in another order") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<gw::slot_size> slots(1 + random() % 40);
    std::vector<gw::ready_event> observed;
    for (gw::slot_size& each : slots) {
      each = {random() % 3 == 0 ? element_kind::float64 : element_kind::float32, 8 * (random() % 5000)};
    }
    std::chrono::nanoseconds now{0};
    for (auto i = static_cast<std::uint32_t>(slots.size()); i-- > 0;) {
      now += std::chrono::microseconds(random() % 50);
      observed.push_back({{i}, now});
    }
    needed_first policy{{.bucket_bytes_max = 1 + random() % 50'000, .first_bucket_bytes_max = 1000}, {}};
    policy.cost = {static_cast<double>(random() % 50) * 1e-6, static_cast<double>(random() % 10) * 1e-9};
    const gw::bucketing_input input{slots, observed};
    gw::bucket_plan plan = policy.plan(input);
    REQUIRE(gw::plan_fault(plan, slots) == "");
    REQUIRE(replay(plan, input, policy) >= 0);
    auto in_turn = indices(plan);
    auto by_readiness = indices(ready_order{policy.caps}.plan(input));
    std::sort(in_turn.begin(), in_turn.end());
    std::sort(by_readiness.begin(), by_readiness.end());
    CHECK(in_turn == by_readiness);
  }
}

TEST_CASE("needed_first: the kit of bucketing policies passes") {
  const auto report = gt::check_bucketing(needed_first{});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  const auto told = gt::check_description({needed_first{},
                                           {{.bucket_bytes_max = 1}},
                                           {{.first_bucket_bytes_max = 1}},
                                           {.cost = {.alpha_s = 1}},
                                           {.cost = {.beta_s_per_byte = 1}}});
  CHECK_MESSAGE(told.passed(), gt::to_string(told));
}
