/// @file
/// Rank 0's plan, on every rank, checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/agreement.hpp>

namespace gradweave::detail {

/// As numbers: for each slot in launch order its index, with the top bit set where a bucket begins. The length is the
/// number of slots, which all ranks know.
inline std::vector<std::uint32_t> encode_plan(const bucket_plan& plan) {
  std::vector<std::uint32_t> numbers;
  for (const auto& members : plan.buckets) {
    std::uint32_t begins = 1U << 31;
    for (const slot member : members) {
      numbers.push_back(member.index | begins);
      begins = 0;
    }
  }
  return numbers;
}

inline bucket_plan decode_plan(std::span<const std::uint32_t> numbers) {
  bucket_plan plan;
  for (const std::uint32_t number : numbers) {
    if ((number >> 31) != 0 || plan.buckets.empty()) {
      plan.buckets.emplace_back();
    }
    plan.buckets.back().push_back({number & ~(1U << 31)});
  }
  return plan;
}

/// Rank 0's `plan` on every rank. Throws sync_error(plan_invalid) where what arrived is no valid plan for `slots`.
template <host_backend Backend>
bucket_plan broadcast_plan(Backend& backend, const bucket_plan& plan, std::span<const slot_size> slots) {
  std::vector<std::uint32_t> numbers = encode_plan(plan);
  numbers.resize(slots.size());
  broadcast_bytes(backend, 0, std::as_writable_bytes(std::span(numbers)));
  bucket_plan received = decode_plan(numbers);
  if (const std::string fault = plan_fault(received, slots); !fault.empty()) {
    throw sync_error({errc::plan_invalid, 0, -1, -1, {}, "rank 0's plan arrived damaged: " + fault});
  }
  return received;
}

}  // namespace gradweave::detail
