/// @file
/// Plans as plain numbers, to compare with.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::tests {

/// The slots of each bucket in launch order.
inline std::vector<std::vector<std::uint32_t>> indices(const bucket_plan& plan) {
  std::vector<std::vector<std::uint32_t>> buckets;
  for (const auto& bucket : plan.buckets) {
    buckets.emplace_back();
    for (const slot each : bucket) {
      buckets.back().push_back(each.index);
    }
  }
  return buckets;
}

/// Whether any slot travels in slices.
inline bool has_slices(const bucket_plan& plan) {
  std::set<std::uint32_t> seen;
  for (const auto& bucket : plan.buckets) {
    for (const slot each : bucket) {
      if (!seen.insert(each.index).second) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace gradweave::tests
