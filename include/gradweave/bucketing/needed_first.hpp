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
#include <utility>
#include <vector>

#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// What: small buckets as ready_order fills them, launched as a priority lane would: whenever the lane is free, of the
/// buckets that are complete the one with the slot that was registered first, which a forward pass reaches first. Models:
/// bucketing_policy. Semantics: begins as fixed_bytes does; plans anew after step 0, and after step 1, since ready times of
/// a cold start mislead. What is ready when is what rank 0 observed, and how long a bucket takes is `cost`: where a step
/// goes otherwise the order stays, and a bucket waits for one that is late. A bucket is what can be overtaken; a slot is
/// never split. It gains where the trainer waits for single slots (`wait`) and communication is longer than the backward
/// pass; otherwise it ends when ready_order with the same caps ends. DISTRIBUTED_BUCKET_SIZE overrides the cap. Failure:
/// contract_violation on a malformed variable or costs that are no times.
/// Example: `bucketing::needed_first{.cost = bucketing::measure_cost(backend)}`.
struct needed_first {
  bucket_caps caps = {.bucket_bytes_max = std::size_t{4} << 20};
  collective_cost cost = {};

  friend bool operator==(const needed_first&, const needed_first&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    cost.check();
    bucket_plan by_readiness = ready_order{caps}.plan(input);
    return input.observed.empty() ? by_readiness : prioritized(std::move(by_readiness), input);
  }

  bool replans_after(std::uint64_t step) const { return step <= 1; }

  needed_first with_environment() const { return {caps.with_environment(), cost}; }

  void describe(description& sink) const {
    sink.add("name", "needed_first");
    caps.describe(sink);
    cost.describe(sink);
  }

 private:
  /// Buckets become complete in the order of the plan.
  bucket_plan prioritized(bucket_plan plan, const bucketing_input& input) const {
    const std::vector<double> ready_s = ready_times(input);
    using needed = std::pair<std::uint32_t, std::size_t>;  // its first slot, which bucket
    std::priority_queue<needed, std::vector<needed>, std::greater<>> complete;
    bucket_plan launched;
    double free_s = 0;
    for (std::size_t next = 0; launched.buckets.size() < plan.buckets.size();) {
      for (; next < plan.buckets.size(); ++next) {
        const auto& members = plan.buckets[next];
        double complete_s = 0;
        std::uint32_t first = UINT32_MAX;
        for (const slot which : members) {
          complete_s = std::max(complete_s, ready_s[which.index]);
          first = std::min(first, which.index);
        }
        if (complete.empty()) {
          free_s = std::max(free_s, complete_s);  // the lane has waited for it
        } else if (complete_s > free_s) {
          break;
        }
        complete.emplace(first, next);
      }
      auto& members = plan.buckets[complete.top().second];
      complete.pop();
      std::size_t bytes = 0;
      for (const slot which : members) {
        bytes += input.slots[which.index].bytes;
      }
      free_s += cost.seconds(bytes);
      launched.buckets.push_back(std::move(members));
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
