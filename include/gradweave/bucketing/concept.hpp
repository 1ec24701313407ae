/// @file
/// What a bucketing policy is: a pure function from slot sizes, and what was observed, to a plan.
/// docs/reference/bucketing.md has the requirements.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradweave/bucketing/slice.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave {

/// What a bucketing policy may know of a slot.
struct slot_size {
  element_kind kind = element_kind::float32;
  std::size_t bytes = 0;

  std::size_t elements() const { return bytes / element_bytes(kind); }
};

/// A slot that became ready, and when, counted from the start of the step.
struct ready_event {
  slot which;
  std::chrono::nanoseconds when{};
};

/// What a plan is made from: all slots in registration order, and the order in which they became ready on rank 0 in the
/// step just observed (empty at the start).
struct bucketing_input {
  std::span<const slot_size> slots;
  std::span<const ready_event> observed;
};

/// Buckets in launch order, each a list of slots of one element kind. Every slot is listed: once to travel whole, n times
/// to be cut into n slices (`slice_at`), of which each stands where it is listed, in their order.
struct bucket_plan {
  std::vector<std::vector<slot>> buckets;
  friend bool operator==(const bucket_plan&, const bucket_plan&) = default;
};

/// Empty where `plan` is valid for `slots`, else a sentence that says what is wrong with it.
inline std::string plan_fault(const bucket_plan& plan, std::span<const slot_size> slots) {
  std::vector<std::size_t> listed(slots.size(), 0);
  std::size_t missing = slots.size();
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::string here = "bucket " + std::to_string(b);
    if (plan.buckets[b].empty()) {
      return here + " is empty";
    }
    for (const slot member : plan.buckets[b]) {
      if (member.index >= slots.size()) {
        return here + " names slot " + std::to_string(member.index) + " of " + std::to_string(slots.size());
      }
      if (const std::size_t most = slices_max(slots[member.index].elements()); listed[member.index] == most) {
        return here + " repeats slot " + std::to_string(member.index) +
               (most == 1 ? ", which is too small to be cut"
                          : ", which can be cut into " + std::to_string(most) + " slices, not more");
      }
      if (slots[member.index].kind != slots[plan.buckets[b].front().index].kind) {
        return here + " mixes element kinds";
      }
      missing -= listed[member.index]++ == 0 ? 1 : 0;
    }
  }
  return missing == 0 ? "" : std::to_string(missing) + " slots are in no bucket";
}

/// Calls `visit(bucket, which, slot_slice)` for what buckets hold, in the plan's order: whole slots, and slices, of which
/// neighbours in a bucket count as one. The plan is valid for `slots`.
template <std::invocable<std::size_t, slot, slot_slice> Visit>
void for_each_slice(const bucket_plan& plan, std::span<const slot_size> slots, Visit&& visit) {
  std::vector<slice_place> places(slots.size(), {0, 0});
  for (const auto& members : plan.buckets) {
    for (const slot which : members) {
      ++places[which.index].of;
    }
  }
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const auto& members = plan.buckets[b];
    slot_slice run;
    for (std::size_t i = 0; i < members.size(); ++i) {
      slice_place& place = places[members[i].index];
      const slot_slice next = slice_at(slots[members[i].index].elements(), place);
      ++place.number;
      run = i != 0 && members[i - 1] == members[i] ? slot_slice{run.begin, run.elements + next.elements} : next;
      if (i + 1 == members.size() || members[i + 1] != members[i]) {
        visit(b, members[i], run);
      }
    }
  }
}

/// Atom: `plan(input)`, const, returns a bucket_plan.
template <class P>
concept bucketing_makes_plan = requires(const P& policy, const bucketing_input& input) {
  { policy.plan(input) } -> std::same_as<bucket_plan>;
};

/// Atom: `replans_after(step)`, const: whether to observe step `step` (counted from 0) and plan anew after it. It must
/// give the same answer on every rank.
template <class P>
concept bucketing_replans = requires(const P& policy, std::uint64_t step) {
  { policy.replans_after(step) } -> std::same_as<bool>;
};

template <class P>
concept bucketing_policy = policy_value<P> && bucketing_makes_plan<P> && bucketing_replans<P>;

/// Says in one sentence which requirement of `bucketing_policy` P misses. Compiles for a bucketing policy.
template <class P>
consteval bool explain_bucketing() {
  static_assert(std::copyable<P>, "bucketing: the policy must be copyable");
  static_assert(std::equality_comparable<P>, "bucketing: the policy must have ==");
  static_assert(describes_itself<P>, "bucketing: describe(description&) must exist and be const");
  static_assert(bucketing_makes_plan<P>,
                "bucketing: plan(const bucketing_input&) must be const and return bucket_plan");
  static_assert(bucketing_replans<P>, "bucketing: replans_after(std::uint64_t) must be const and return bool");
  return bucketing_policy<P>;
}

/// Optional atom: `with_environment()` returns the policy with what the environment says in place of its own options.
/// `synchronize` applies it to each policy that has it. Throws contract_violation on a malformed variable.
template <class P>
concept environment_aware = requires(const P& policy) {
  { policy.with_environment() } -> std::same_as<P>;
};

}  // namespace gradweave
