/// @file
/// The step record: the fixed-size control message that is each step's last collective. It shows every rank that all of
/// them ended the same step, and what they saw in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gradweave/error.hpp>

namespace gradweave::detail {

struct step_record {
  std::uint64_t step = 0;
  std::uint64_t non_finite = 0;
  std::uint64_t unused_digest = 0;  ///< of the slots that came as zeros
  std::uint64_t accumulated = 0;    ///< how many steps were accumulated before this one
  std::uint32_t plan_version = 0;
  std::uint8_t has_data = 1;
  std::uint8_t reserved[27] = {};
};
static_assert(sizeof(step_record) == 64, "the record has one size in every version");

/// What is wrong with the ranks' records of one step, if anything.
inline std::optional<failure> record_fault(std::span<const step_record> records) {
  for (std::size_t r = 1; r < records.size(); ++r) {
    const auto differ = [&](const char* what, std::uint64_t first, std::uint64_t other) {
      failure cause{
          errc::collective_mismatch, static_cast<int>(r), static_cast<std::int64_t>(records[0].step), -1, {}, ""};
      cause.detail = std::string("ranks ended a step with different ") + what + ": " + std::to_string(first) +
                     " on rank 0, " + std::to_string(other) + " on rank " + std::to_string(r);
      return cause;
    };
    if (records[r].step != records[0].step) {
      return differ("numbers", records[0].step, records[r].step);
    }
    if (records[r].plan_version != records[0].plan_version) {
      return differ("plan versions", records[0].plan_version, records[r].plan_version);
    }
    if (records[r].accumulated != records[0].accumulated) {
      return differ("numbers of accumulated steps before it", records[0].accumulated, records[r].accumulated);
    }
  }
  return std::nullopt;
}

/// What all ranks' records of one step say together.
struct step_outcome {
  std::uint64_t non_finite = 0;   ///< encoded values, on all ranks
  bool same_slots_unused = true;  ///< by all ranks
};

/// Throws sync_error where the ranks did not end the same step.
inline step_outcome outcome_of(std::span<const step_record> records) {
  if (auto fault = record_fault(records)) {
    throw sync_error(std::move(*fault));
  }
  step_outcome outcome;
  for (const step_record& record : records) {
    outcome.non_finite += record.non_finite;
    outcome.same_slots_unused = outcome.same_slots_unused && record.unused_digest == records[0].unused_digest;
  }
  return outcome;
}

}  // namespace gradweave::detail
