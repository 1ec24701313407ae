/// @file
/// The step record, and the rule by which records of one step belong together: shared by the host and by kernels, so that
/// both judge alike.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradweave/config.hpp>

namespace gradweave {

/// The fixed-size control message that is each step's last collective.
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

/// What a step came to, in memory of the device: kernels of an optimizer can look at it without the host.
struct step_verdict {
  std::uint32_t is_valid = 0;    ///< 1 where all ranks ended the same step
  std::uint32_t is_finite = 0;   ///< 1 where it is valid and no encoded value was not finite
  std::uint64_t non_finite = 0;  ///< encoded values that were not finite, on all ranks

  friend bool operator==(const step_verdict&, const step_verdict&) = default;
};

namespace detail {

using gradweave::step_record;

/// In what records of one step differ.
enum class record_field : std::uint8_t { none, step, plan_version, accumulated, loss_scale };

struct record_difference {
  record_field field = record_field::none;
  std::size_t first = 0;  ///< two ranks that differ in it
  std::size_t other = 0;
};

/// The first difference that must not be. Ranks without data take part in the others' steps.
GRADWEAVE_HOST_DEVICE constexpr record_difference difference_of(const step_record* records, std::size_t ranks) {
  std::size_t live = ranks;  // the first that has data
  for (std::size_t r = 0; r < ranks; ++r) {
    if (records[r].step != records[0].step) {
      return {record_field::step, 0, r};
    }
    if (records[r].plan_version != records[0].plan_version) {
      return {record_field::plan_version, 0, r};
    }
    if (records[r].has_data != 0) {
      live = live == ranks ? r : live;
      if (records[r].accumulated != records[live].accumulated) {
        return {record_field::accumulated, live, r};
      }
      if (r != live && records[r].loss_scale != records[live].loss_scale) {  // NaN differs from itself
        return {record_field::loss_scale, live, r};
      }
    }
  }
  return {};
}

/// What kernels make of all ranks' records.
GRADWEAVE_HOST_DEVICE constexpr step_verdict verdict_on(const step_record* records, std::size_t ranks) {
  step_verdict verdict;
  verdict.is_valid = difference_of(records, ranks).field == record_field::none ? 1 : 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    verdict.non_finite += records[r].non_finite;
  }
  verdict.is_finite = verdict.is_valid != 0 && verdict.non_finite == 0 ? 1 : 0;
  return verdict;
}

}  // namespace detail

}  // namespace gradweave
