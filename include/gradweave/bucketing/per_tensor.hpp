/// @file
/// One bucket a gradient: the finest overlap, the most collectives.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

/// What: each slot is a bucket of its own, in reversed registration order, since a backward pass ends with the layer
/// that was registered first. Models: bucketing_policy. Semantics: never plans anew. Cost: one collective a slot, so its
/// latency a slot. Failure: none. Example: `gradweave::synchronize(manifest, backend, bucketing::per_tensor{})`.
struct per_tensor {
  friend bool operator==(const per_tensor&, const per_tensor&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    bucket_plan made;
    for (std::size_t i = input.slots.size(); i-- > 0;) {
      made.buckets.push_back({slot{static_cast<std::uint32_t>(i)}});
    }
    return made;
  }

  bool replans_after(std::uint64_t) const { return false; }

  void describe(description& sink) const { sink.add("name", "per_tensor"); }
};

static_assert(bucketing_policy<per_tensor>);

}  // namespace gradweave::bucketing
