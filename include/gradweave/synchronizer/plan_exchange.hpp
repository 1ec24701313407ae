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
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/agreement.hpp>

namespace gradweave::detail {

/// As numbers: what buckets list in launch order, with the top bit set where a bucket begins.
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

/// How much a valid plan lists at most.
inline std::size_t listed_max(std::span<const slot_size> slots) {
  std::size_t most = 0;
  for (const slot_size& each : slots) {
    most += slices_max(each.elements());
  }
  return most;
}

/// The plan that rank 0's policy makes, on every rank. Throws sync_error(plan_invalid) where it is no valid plan for
/// `slots`.
template <host_backend Backend, bucketing_policy Bucketing>
bucket_plan agree_on_plan(Backend& backend, const Bucketing& bucketing, std::span<const slot_size> slots,
                          std::span<const ready_event> observed) {
  bucket_plan plan;
  const auto check = [&](const char* whose, const std::string& fault) {
    if (!fault.empty()) {
      throw sync_error({errc::plan_invalid, 0, -1, -1, {}, whose + fault});
    }
  };
  if (backend.rank() == 0) {
    plan = bucketing.plan({slots, observed});
    check("the bucketing policy returned a wrong plan: ", plan_fault(plan, slots));
  }
  if (backend.size() > 1) {
    constexpr const char* damaged = "rank 0's plan arrived damaged: ";
    std::vector<std::uint32_t> numbers = encode_plan(plan);
    std::uint64_t count = numbers.size();
    broadcast_bytes(backend, 0, std::as_writable_bytes(std::span(&count, 1)));
    const std::size_t most = listed_max(slots);
    check(damaged,
          count <= most ? "" : "it lists " + std::to_string(count) + " slots and slices of " + std::to_string(most));
    numbers.resize(count);
    broadcast_bytes(backend, 0, std::as_writable_bytes(std::span(numbers)));
    plan = decode_plan(numbers);
    check(damaged, plan_fault(plan, slots));
  }
  return plan;
}

}  // namespace gradweave::detail
