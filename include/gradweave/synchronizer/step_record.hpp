/// @file
/// What the step records of all ranks say together: whether all of them ended the same step, and what they saw in it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gradweave/device/records.hpp>
#include <gradweave/error.hpp>

namespace gradweave::detail {

/// A time as records hold it: up to 71 minutes.
inline std::uint32_t to_record_us(std::chrono::nanoseconds time) {
  return static_cast<std::uint32_t>(std::clamp<std::int64_t>(time.count() / 1000, 0, UINT32_MAX));
}

/// What is wrong with the ranks' records of one step, if anything.
inline std::optional<failure> record_fault(std::span<const step_record> records) {
  const record_difference found = difference_of(records.data(), records.size());
  const auto differ = [&](const char* what, auto number) -> std::optional<failure> {
    failure cause{errc::collective_mismatch,
                  static_cast<int>(found.other),
                  static_cast<std::int64_t>(records[0].step),
                  -1,
                  {},
                  ""};
    cause.detail = std::string("ranks ended a step with different ") + what + ": " +
                   std::to_string(records[found.first].*number) + " on rank " + std::to_string(found.first) + ", " +
                   std::to_string(records[found.other].*number) + " on rank " + std::to_string(found.other);
    return cause;
  };
  switch (found.field) {
    case record_field::none: break;
    case record_field::step: return differ("numbers", &step_record::step);
    case record_field::plan_version: return differ("plan versions", &step_record::plan_version);
    case record_field::accumulated: return differ("numbers of accumulated steps before it", &step_record::accumulated);
    case record_field::loss_scale: return differ("loss scales", &step_record::loss_scale);
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
