/// @file
/// What a step brought and what the synchronizer has done so far: plain values. docs/reference/statistics.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace gradweave {

/// What all ranks agree on at the end of a step.
struct step_result {
  std::uint64_t step = 0;        ///< counted from 0
  std::uint64_t non_finite = 0;  ///< encoded values that were not finite, by overflow or as they came, on all ranks

  /// Whether the compressor saw only finite values. (An uncompressed float32 gradient is not looked at.)
  bool finite() const { return non_finite == 0; }
};

/// Sums over steps, of this rank: those since the start, or one.
struct sync_statistics {
  std::uint64_t steps = 0;
  std::chrono::nanoseconds step_time{};      ///< from begin_step to the end of finish
  std::chrono::nanoseconds forward_time{};   ///< from the end of the step or accumulation before to the first ready
  std::chrono::nanoseconds backward_time{};  ///< from the first ready to close, of accumulations too
  std::chrono::nanoseconds communication_time{};  ///< from the first bucket's launch to the end of the step record
  std::chrono::nanoseconds exposed_time{};        ///< what the caller waited, in `wait` and `finish`
  std::chrono::nanoseconds encode_time{};         ///< work on buckets before their first collective
  std::chrono::nanoseconds decode_time{};         ///< and after it: sums of encoded values, decoding, copying back
  std::uint64_t bytes_raw = 0;                    ///< gradients synchronized, as stored
  std::uint64_t bytes_on_wire = 0;                ///< payload sent by this rank for them, step records included
  std::uint64_t non_finite = 0;                   ///< sum of the step results'

  /// The part of the step that waited for communication, from 0 to 1.
  double exposed_share() const {
    return step_time.count() == 0 ? 0
                                  : static_cast<double>(exposed_time.count()) / static_cast<double>(step_time.count());
  }

  void add(const sync_statistics& other) {
    steps += other.steps;
    step_time += other.step_time;
    forward_time += other.forward_time;
    backward_time += other.backward_time;
    communication_time += other.communication_time;
    exposed_time += other.exposed_time;
    encode_time += other.encode_time;
    decode_time += other.decode_time;
    bytes_raw += other.bytes_raw;
    bytes_on_wire += other.bytes_on_wire;
    non_finite += other.non_finite;
  }
};

/// One bucket in one step. Moments are counted from begin_step.
struct bucket_statistics {
  std::chrono::nanoseconds ready{};     ///< its last gradient was
  std::chrono::nanoseconds launched{};  ///< its first collective was, once earlier buckets were reduced
  std::chrono::nanoseconds finished{};  ///< its gradients were averages
  std::chrono::nanoseconds exposed{};   ///< what the caller waited while it was this bucket's turn
  std::uint64_t bytes_raw = 0;
  std::uint64_t bytes_on_wire = 0;
};

/// What made a rank the last.
enum class late_in : std::uint8_t {
  nothing,  ///< there is one rank only
  compute,  ///< it ended its backward pass later than the others
  network,  ///< it did not, but its last bucket was reduced later than theirs
};

/// Whom the other ranks waited for in a step. All ranks name the same one.
struct slowest_rank {
  int rank = -1;
  late_in cause = late_in::nothing;
  std::chrono::nanoseconds behind{};  ///< how much later than the median rank
};

/// One step of this rank.
struct step_statistics {
  sync_statistics whole;                   ///< of one step, or none before the first has ended
  std::vector<bucket_statistics> buckets;  ///< in launch order; empty where there is one rank
  slowest_rank slowest;
};

/// What this rank knows of another, or of itself: sums over the steps since the start.
struct rank_statistics {
  std::uint64_t late_in_compute = 0;         ///< steps in which it was the slowest for that reason
  std::uint64_t late_in_network = 0;         ///< steps in which it was the slowest for that one
  std::chrono::nanoseconds behind{};         ///< the median rank, in those steps
  std::chrono::nanoseconds backward_time{};  ///< as it says
};

}  // namespace gradweave
