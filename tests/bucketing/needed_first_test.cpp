#include <gradweave/bucketing/needed_first.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/collective/step_prediction.hpp>
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

/// Into how many slices a slot should go.
std::size_t slices_of(const gw::slot_size& size, const needed_first& policy) {
  return std::clamp<std::size_t>(size.bytes / policy.caps.bucket_bytes_max, 1, gw::slices_max(size.elements()));
}

/// Replays a plan: whenever a bucket or a slice begins, nothing that is complete is needed before it, and the lane is never
/// idle while anything is complete. When the lane is done, in seconds; -1 where that is not so.
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
  std::vector<std::size_t> listed(input.slots.size()), gone(input.slots.size());
  for (const auto& members : plan.buckets) {
    for (const gw::slot which : members) {
      ++listed[which.index];
    }
  }
  for (const auto& members : plan.buckets) {
    const gw::slot_size& size = input.slots[members.front().index];
    if (const std::size_t slices = slices_of(size, policy); slices > 1) {
      const std::size_t here = listed[members.front().index] == 1 ? slices : members.size();
      for (std::size_t i = 0; i < here; ++i) {
        const gw::slot_slice part = gw::slice_at(size.elements(), {gone[members.front().index]++, slices});
        const double seconds = policy.cost.seconds(part.elements * gw::element_bytes(size.kind));
        jobs.push_back(
            {ready_s[members.front().index], i == 0 ? seconds : seconds - policy.cost.alpha_s, members.front().index});
      }
      continue;
    }
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
  constexpr double rounding = 1e-12;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto earliest = std::min_element(jobs.begin() + static_cast<std::ptrdiff_t>(i), jobs.end(),
                                           [](const job& a, const job& b) { return a.complete_s < b.complete_s; });
    now = std::max(now, earliest->complete_s);
    const bool passed_over =
        std::any_of(jobs.begin() + static_cast<std::ptrdiff_t>(i), jobs.end(),
                    [&](const job& each) { return each.complete_s <= now - rounding && each.first < jobs[i].first; });
    if (passed_over || jobs[i].complete_s > now + rounding) {
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

TEST_CASE("needed_first: what is needed first goes between the slices of what is larger than two caps") {
  // A slice takes 10 ms, or 9 where it follows on one, and so does a slot that is as large as the cap.
  const gw::slot_size fits{element_kind::float32, 4 * 4096};
  const std::vector<gw::slot_size> slots = {fits, fits, {element_kind::float32, 4 * 4 * 4096}};
  const needed_first policy{{.bucket_bytes_max = fits.bytes}, {.alpha_s = 1e-3, .beta_s_per_byte = 9e-3 / 16'384}};
  CHECK(indices(policy.plan({slots, ready_at({{2, 0}, {1, 5}, {0, 35}})})) == plan_of{{2}, {1}, {2, 2}, {0}, {2}});
  CHECK(indices(policy.plan({slots, ready_at({{2, 0}, {1, 100}, {0, 100}})})) == plan_of{{2}, {0}, {1}});
  // Nothing overtakes what is needed before all others, nor what is smaller than two caps, or too small to be cut.
  const std::vector<gw::slot_size> large = {slots[2], fits};
  CHECK(indices(policy.plan({large, ready_at({{0, 0}, {1, 5}})})) == plan_of{{0}, {1}});
  const std::vector<gw::slot_size> smaller = {fits, {element_kind::float32, 2 * 4 * 4096 - 4}};
  CHECK(indices(policy.plan({smaller, ready_at({{1, 0}, {0, 5}})})) == plan_of{{1}, {0}});
  const std::vector<gw::slot_size> uncut = {fits, {element_kind::float64, 8 * 8191}};
  CHECK(indices(policy.plan({uncut, ready_at({{1, 0}, {0, 5}})})) == plan_of{{1}, {0}});
}

TEST_CASE("needed_first: fills the buckets of ready_order, cuts what is larger than two caps, and launches by need") {
  int cut = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    std::vector<gw::slot_size> slots(1 + random() % 40);
    std::vector<gw::ready_event> observed;
    for (gw::slot_size& each : slots) {
      each = {random() % 3 == 0 ? element_kind::float64 : element_kind::float32,
              8 * (random() % (random() % 4 == 0 ? 60'000 : 5000))};
    }
    std::chrono::nanoseconds now{0};
    for (auto i = static_cast<std::uint32_t>(slots.size()); i-- > 0;) {
      now += std::chrono::microseconds(random() % 50);
      observed.push_back({{i}, now});
    }
    needed_first policy{{.bucket_bytes_max = 1 + random() % 50'000, .first_bucket_bytes_max = 1000}, {}};
    policy.cost = {static_cast<double>(random() % 50) * 1e-6, static_cast<double>(random() % 10) * 1e-9};
    const gw::bucketing_input input{slots, observed};
    const gw::bucket_plan plan = policy.plan(input);
    REQUIRE(gw::plan_fault(plan, slots) == "");
    REQUIRE(replay(plan, input, policy) >= 0);
    std::vector<gw::slot> small;
    for (const gw::ready_event& event : observed) {
      if (slices_of(slots[event.which.index], policy) == 1) {
        small.push_back(event.which);
      }
    }
    auto by_readiness = indices(gw::bucketing::fill_buckets(slots, small, policy.caps));
    plan_of in_turn;
    for (const auto& members : indices(plan)) {
      if (slices_of(slots[members.front()], policy) == 1) {
        in_turn.push_back(members);
      } else {
        cut += members.size() > 1 ? 1 : 0;
      }
    }
    std::sort(in_turn.begin(), in_turn.end());
    std::sort(by_readiness.begin(), by_readiness.end());
    CHECK(in_turn == by_readiness);
  }
  CHECK(cut > 0);
}

TEST_CASE(
    "needed_first: a large slot that is ready first holds up what is needed first for a slice, not for all of it") {
  // Twelve layers of 4 MiB, and an output embedding of 512 MiB, whose gradient a backward pass of 100 ms has at once.
  std::vector<gw::slot_size> slots(13, {element_kind::float32, std::size_t{4} << 20});
  slots.back().bytes = std::size_t{512} << 20;
  std::vector<std::pair<std::uint32_t, int>> ready{{12, 1}};
  for (std::uint32_t i = 12; i-- > 0;) {
    ready.emplace_back(i, 100 - 8 * static_cast<int>(i));
  }
  const needed_first policy{};
  const auto observed = ready_at(ready);
  const gw::bucketing_input input{slots, observed};
  /// When the layers have all arrived, and when all has.
  const auto arrivals = [&](const gw::bucket_plan& plan) {
    std::vector<gw::timed_bucket> buckets(plan.buckets.size());
    std::vector<std::size_t> last(slots.size());
    gw::for_each_slice(plan, slots, [&](std::size_t b, gw::slot which, gw::slot_slice part) {
      buckets[b].bytes += part.elements * sizeof(float);
      const auto event = std::ranges::find(observed, which, &gw::ready_event::which);
      buckets[b].ready_s = std::max(buckets[b].ready_s, std::chrono::duration<double>(event->when).count());
      last[which.index] = b;
    });
    const auto ends = gw::bucket_ends(buckets, [&](std::size_t bytes) { return policy.cost.seconds(bytes); });
    return std::pair(ends[*std::max_element(last.begin(), last.end() - 1)], ends.back());
  };
  const auto [layers_s, all_s] = arrivals(policy.plan(input));
  const auto [whole_layers_s, whole_all_s] = arrivals(ready_order{policy.caps}.plan(input));
  const double whole_s = policy.cost.seconds(slots[12].bytes);
  const double each_s = policy.cost.seconds(slots[0].bytes);
  CHECK(whole_layers_s > 0.001 + whole_s);
  CHECK(layers_s < 0.1 + 3 * each_s);  // the end of the backward pass, a slice, the last layer, and rounding
  CHECK(all_s < whole_all_s + 13 * policy.cost.alpha_s);
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
