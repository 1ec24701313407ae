/// @file
/// Buckets in the order of a priority lane: of those that are ready, the one that the next forward pass needs first.
///
/// Priorities of parameters as in ByteScheduler (Peng et al., SOSP 2019, section 2.2) and P3 (Jayarajan et al., MLSys 2019).
/// There each rank's queue decides while the step runs; here rank 0 decides when it plans, so that all ranks launch alike.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// What: small buckets as ready_order fills them, launched as a priority lane would: whenever the lane is free, of the
/// buckets that are complete the one with the slot that was registered first, which a forward pass reaches first. A slot of
/// two caps or more goes in slices of a cap or more, and what is needed before it overtakes between them. Models:
/// bucketing_policy. Semantics: begins as fixed_bytes does; plans anew after step 0, and after step 1, since ready times of
/// a cold start mislead. What is ready when is what rank 0 observed, and how long a bucket takes is `cost`: where a step
/// goes otherwise the order stays, and a bucket waits for one that is late; costs that are too high make the lane wait. Slices that nothing overtakes travel as one
/// bucket. It gains where the trainer waits for single slots (`wait`) and communication is longer than the backward pass;
/// otherwise it ends when ready_order with the same caps ends. DISTRIBUTED_BUCKET_SIZE overrides the cap. Failure:
/// contract_violation on a malformed variable or costs that are no times.
/// Example: `bucketing::needed_first{.cost = bucketing::measure_cost(backend)}`.
struct needed_first {
  bucket_caps caps = {.bucket_bytes_max = std::size_t{4} << 20};
  collective_cost cost = {};

  friend bool operator==(const needed_first&, const needed_first&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    cost.check();
    return input.observed.empty() ? ready_order{caps}.plan(input) : prioritized(input);
  }

  bool replans_after(std::uint64_t step) const { return step <= 1; }

  needed_first with_environment() const { return {caps.with_environment(), cost}; }

  void describe(description& sink) const {
    sink.add("name", "needed_first");
    caps.describe(sink);
    cost.describe(sink);
  }

 private:
  /// A bucket, or a slot in slices, of which the next one goes when its turn comes.
  struct job {
    std::vector<slot> members;
    double complete_s = 0;
    std::uint32_t first = UINT32_MAX;  // of its slots: when it is needed
    slice_place next = {};
  };

  std::size_t slices_of(const slot_size& size) const {
    const std::size_t cap = std::max<std::size_t>(1, caps.bucket_bytes_max);
    return std::clamp<std::size_t>(size.bytes / cap, 1, slices_max(size.elements()));
  }

  /// In the order in which they become complete.
  std::vector<job> jobs_of(const bucketing_input& input) const {
    std::vector<job> jobs;
    std::vector<slot> small;
    for (const slot which : order_of_readiness(input.slots.size(), input.observed)) {
      if (const std::size_t slices = slices_of(input.slots[which.index]); slices == 1) {
        small.push_back(which);
      } else {
        jobs.push_back({.members = {which}, .next = {0, slices}});
      }
    }
    for (auto& members : fill_buckets(input.slots, small, caps).buckets) {
      jobs.push_back({.members = std::move(members)});
    }
    const std::vector<double> ready_s = ready_times(input);
    for (job& each : jobs) {
      for (const slot which : each.members) {
        each.complete_s = std::max(each.complete_s, ready_s[which.index]);
        each.first = std::min(each.first, which.index);
      }
    }
    std::stable_sort(jobs.begin(), jobs.end(), [](const job& a, const job& b) { return a.complete_s < b.complete_s; });
    return jobs;
  }

  /// Of what goes next of a job.
  static std::size_t bytes_of(const job& of, std::span<const slot_size> slots) {
    std::size_t bytes = 0;
    for (const slot which : of.members) {
      const slot_size& size = slots[which.index];
      bytes += slice_at(size.elements(), of.next).elements * element_bytes(size.kind);
    }
    return bytes;
  }

  /// A slice that follows on one of its own slot joins that one's bucket, since nothing comes between them.
  bucket_plan prioritized(const bucketing_input& input) const {
    std::vector<job> jobs = jobs_of(input);
    using needed = std::pair<std::uint32_t, std::size_t>;  // its first slot, which job
    std::priority_queue<needed, std::vector<needed>, std::greater<>> complete;
    bucket_plan launched;
    double free_s = 0;
    std::size_t last = jobs.size();
    for (std::size_t next = 0; next < jobs.size() || !complete.empty();) {
      for (; next < jobs.size(); ++next) {
        if (complete.empty()) {
          free_s = std::max(free_s, jobs[next].complete_s);  // the lane has waited for it
        } else if (jobs[next].complete_s > free_s) {
          break;
        }
        complete.emplace(jobs[next].first, next);
      }
      job& top = jobs[complete.top().second];
      if (complete.top().second == last) {
        launched.buckets.back().push_back(top.members.front());
        free_s += cost.seconds(bytes_of(top, input.slots)) - cost.seconds(0);
      } else {
        launched.buckets.push_back(top.members);
        free_s += cost.seconds(bytes_of(top, input.slots));
      }
      last = complete.top().second;
      if (++top.next.number == top.next.of) {
        complete.pop();
      }
    }
    for (auto& members : launched.buckets) {
      const bool is_cut = members.front() == members.back();
      if (is_cut && members.size() == slices_of(input.slots[members.front().index])) {
        members.resize(1);  // nothing has overtaken it
      }
    }
    return launched;
  }

  /// Of each slot. What never became ready is there at the end.
  static std::vector<double> ready_times(const bucketing_input& input) {
    double last_s = 0;
    for (const ready_event& event : input.observed) {
      last_s = std::max(last_s, std::chrono::duration<double>(event.when).count());
    }
    std::vector<double> ready_s(input.slots.size(), last_s);
    for (const ready_event& event : input.observed) {
      ready_s[event.which.index] = std::chrono::duration<double>(event.when).count();
    }
    return ready_s;
  }
};

static_assert(bucketing_policy<needed_first>);

}  // namespace gradweave::bucketing
