/// @file
/// What a step brought and what the synchronizer has done so far: plain values.
#pragma once

#include <chrono>
#include <cstdint>

namespace gradweave {

/// What all ranks agree on at the end of a step.
struct step_result {
  std::uint64_t step = 0;        ///< counted from 0
  std::uint64_t non_finite = 0;  ///< encoded values that were not finite, by overflow or as they came, on all ranks

  /// Whether the compressor saw only finite values. (An uncompressed float32 gradient is not looked at.)
  bool finite() const { return non_finite == 0; }
};

/// Totals since the start, of this rank.
struct sync_statistics {
  std::uint64_t steps = 0;
  std::chrono::nanoseconds step_time{};           ///< from begin_step to the end of finish
  std::chrono::nanoseconds communication_time{};  ///< from the first bucket's launch to the end of the step record
  std::chrono::nanoseconds exposed_time{};        ///< what of it came after the backward pass: the step waited for it
  std::uint64_t bytes_raw = 0;                    ///< gradients synchronized, as stored
  std::uint64_t bytes_on_wire = 0;                ///< payload sent by this rank for them, step records included
  std::uint64_t non_finite = 0;                   ///< sum of the step results'

  /// The part of the step that waited for communication, from 0 to 1.
  double exposed_share() const {
    return step_time.count() == 0 ? 0
                                  : static_cast<double>(exposed_time.count()) / static_cast<double>(step_time.count());
  }
};

}  // namespace gradweave
