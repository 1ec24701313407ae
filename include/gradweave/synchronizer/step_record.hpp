/// @file
/// The step record: the fixed-size control message that is each step's last collective. It shows every rank that all of
/// them ended the same step, and what they saw in it.
#pragma once

#include <algorithm>
#include <chrono>
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
  std::uint32_t accumulated = 0;    ///< how many steps were accumulated before this one
  float loss_scale = 1;             ///< what the loss was multiplied by
  std::uint32_t plan_version = 0;
  std::uint8_t has_data = 1;
  std::uint8_t reserved[3] = {};
  std::uint32_t backward_us = 0;      ///< what the backward pass took
  std::uint32_t entered_us = 0;       ///< when this record was sent, after the end of the step before
  std::uint64_t computed_ns = 0;      ///< when the backward pass had ended, after the same moment
  std::uint64_t ended_before_ns = 0;  ///< that moment, on this rank's clock
};
static_assert(sizeof(step_record) == 64, "the record has one size in every version");

/// A time as records hold it: up to 71 minutes.
inline std::uint32_t to_record_us(std::chrono::nanoseconds time) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(time.count() / 1000, 0, UINT32_MAX));
}

/// What is wrong with the ranks' records of one step, if anything. Ranks without data take part in the others' steps.
inline std::optional<failure> record_fault(std::span<const step_record> records) {
  const auto differ = [&](std::size_t first, std::size_t other, const char* what,
                          auto number) -> std::optional<failure> {
    if (first == other || records[first].*number == records[other].*number) {
      return std::nullopt;
    }
    failure cause{
        errc::collective_mismatch, static_cast<int>(other), static_cast<std::int64_t>(records[0].step), -1, {}, ""};
    cause.detail = std::string("ranks ended a step with different ") + what + ": " +
                   std::to_string(records[first].*number) + " on rank " + std::to_string(first) + ", " +
                   std::to_string(records[other].*number) + " on rank " + std::to_string(other);
    return cause;
  };
  std::size_t live = records.size();  // the first that has data
  for (std::size_t r = 0; r < records.size(); ++r) {
    if (auto fault = differ(0, r, "numbers", &step_record::step)) {
      return fault;
    }
    if (auto fault = differ(0, r, "plan versions", &step_record::plan_version)) {
      return fault;
    }
    if (records[r].has_data != 0) {
      live = live == records.size() ? r : live;
      if (auto fault = differ(live, r, "numbers of accumulated steps before it", &step_record::accumulated)) {
        return fault;
      }
      if (auto fault = differ(live, r, "loss scales", &step_record::loss_scale)) {
        return fault;
      }
    }
  }
  return std::nullopt;
}

/// What all ranks' records of one step say together.
struct step_outcome {
  std::uint64_t non_finite = 0;  ///< encoded values, on all ranks
  int live = 0;                  ///< the first rank that had data, -1 where none had
  bool slots_differ = false;     ///< ranks have to ask each other which slots were used
};

/// Throws sync_error where the ranks did not end the same step.
inline step_outcome outcome_of(std::span<const step_record> records) {
  if (auto fault = record_fault(records)) {
    throw sync_error(std::move(*fault));
  }
  step_outcome outcome;
  outcome.live = -1;
  std::uint64_t digest = 0;
  bool joined = false;
  for (std::size_t r = 0; r < records.size(); ++r) {
    outcome.non_finite += records[r].non_finite;
    if (records[r].has_data == 0) {
      joined = true;
    } else if (outcome.live < 0) {
      outcome.live = static_cast<int>(r);
      digest = records[r].unused_digest;
    } else {
      outcome.slots_differ = outcome.slots_differ || records[r].unused_digest != digest;
    }
  }
  // A rank without data can't tell what the others used, unless it is everything.
  outcome.slots_differ = outcome.slots_differ || (joined && digest != 0);
  return outcome;
}

}  // namespace gradweave::detail
