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

/// The plan that rank 0's policy makes, on every rank. Throws sync_error(plan_invalid) where it is no valid plan for
/// `slots`.
template <host_backend Backend, bucketing_policy Bucketing>
bucket_plan agree_on_plan(Backend& backend, const Bucketing& bucketing, std::span<const slot_size> slots,
                          std::span<const ready_event> observed) {
  bucket_plan plan;
  const auto check = [&](const char* whose) {
    if (const std::string fault = plan_fault(plan, slots); !fault.empty()) {
      throw sync_error({errc::plan_invalid, 0, -1, -1, {}, whose + fault});
    }
  };
  if (backend.rank() == 0) {
    plan = bucketing.plan({slots, observed});
    check("the bucketing policy returned a wrong plan: ");
  }
  if (backend.size() > 1) {
    std::vector<std::uint32_t> numbers = encode_plan(plan);
    numbers.resize(slots.size());
    broadcast_bytes(backend, 0, std::as_writable_bytes(std::span(numbers)));
    plan = decode_plan(numbers);
    check("rank 0's plan arrived damaged: ");
  }
  return plan;
}

}  // namespace gradweave::detail
