/// @file
/// Buckets in the order in which gradients become ready, as the first step shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// What: begins as fixed_bytes does, and after the first step fills the buckets anew in the order in which gradients
/// became ready on rank 0. Models: bucketing_policy. Semantics: one new plan, after step 0; a slot that never became
/// ready goes last. DISTRIBUTED_BUCKET_SIZE overrides the cap. Failure: contract_violation on a malformed variable.
/// Example: `bucketing::ready_order{}`.
struct ready_order {
  bucket_caps caps;

  friend bool operator==(const ready_order&, const ready_order&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    std::vector<bool> seen(input.slots.size(), false);
    std::vector<slot> order;
    for (const ready_event& event : input.observed) {
      if (!seen[event.which.index]) {
        seen[event.which.index] = true;
        order.push_back(event.which);
      }
    }
    for (const slot which : reversed_registration_order(input.slots.size())) {
      if (!seen[which.index]) {
        order.push_back(which);
      }
    }
    return fill_buckets(input.slots, order, caps);
  }

  bool replans_after(std::uint64_t step) const { return step == 0; }

  ready_order with_environment() const { return {caps.with_environment()}; }

  void describe(description& sink) const {
    sink.add("name", "ready_order");
    caps.describe(sink);
  }
};

static_assert(bucketing_policy<ready_order>);

}  // namespace gradweave::bucketing
