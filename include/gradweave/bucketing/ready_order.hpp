/// @file
/// Buckets in the order in which gradients become ready, as the first step shows it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// All slots in the order in which they were observed; those that were not go last.
inline std::vector<slot> order_of_readiness(std::size_t slots, std::span<const ready_event> observed) {
  std::vector<bool> seen(slots, false);
  std::vector<slot> order;
  const auto append = [&](slot which) {
    if (!seen[which.index]) {
      seen[which.index] = true;
      order.push_back(which);
    }
  };
  for (const ready_event& event : observed) {
    append(event.which);
  }
  for (const slot which : reversed_registration_order(slots)) {
    append(which);
  }
  return order;
}

/// What: begins as fixed_bytes does, and after the first step fills the buckets anew in the order in which gradients
/// became ready on rank 0. Models: bucketing_policy. Semantics: one new plan, after step 0; a slot that never became
/// ready goes last. DISTRIBUTED_BUCKET_SIZE overrides the cap. Failure: contract_violation on a malformed variable.
/// Example: `bucketing::ready_order{}`.
struct ready_order {
  bucket_caps caps;

  friend bool operator==(const ready_order&, const ready_order&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    return fill_buckets(input.slots, order_of_readiness(input.slots.size(), input.observed), caps);
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
