/// @file
/// Which rank the others wait for, and why: from what all of them say in their step records. All ranks come to the same
/// answer, without a message more.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/statistics.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// The value that half of them are not above. Changes their order.
inline std::uint64_t median_of(std::span<std::uint64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Keeps count over steps. Allocates nothing after it is made.
class rank_watch {
 public:
  explicit rank_watch(std::size_t ranks) : rows_(ranks), times_(ranks) {}

  /// Of a step that all ranks have ended. Steps end everywhere at about the same time, so times since then compare.
  slowest_rank add(std::span<const step_record> records) {
    for (std::size_t r = 0; r < records.size(); ++r) {
      rows_[r].backward_time += std::chrono::microseconds(records[r].backward_us);
    }
    // A rank that computes longest lets all others wait in the collectives, so that all end these at the same time.
    const slowest_rank computing =
        last_by(records, late_in::compute, [](const step_record& of) { return of.computed_ns; });
    const slowest_rank sending =
        last_by(records, late_in::network, [](const step_record& of) { return of.entered_us * std::uint64_t{1000}; });
    const slowest_rank& last = computing.behind >= sending.behind ? computing : sending;
    rank_statistics& row = rows_[static_cast<std::size_t>(last.rank)];
    ++(last.cause == late_in::compute ? row.late_in_compute : row.late_in_network);
    row.behind += last.behind;
    return last;
  }

  std::span<const rank_statistics> rows() const { return rows_; }

 private:
  template <class TimeOf>
  slowest_rank last_by(std::span<const step_record> records, late_in cause, TimeOf time_of) {
    std::size_t last = 0;
    for (std::size_t r = 0; r < records.size(); ++r) {
      times_[r] = time_of(records[r]);
      last = times_[r] > times_[last] ? r : last;
    }
    constexpr std::uint64_t behind_ns_max =
        3'600'000'000'000;  // so that sums of what others say stay far from overflow
    const std::uint64_t latest = times_[last];
    const std::uint64_t behind = std::min(latest - median_of(times_), behind_ns_max);
    return {static_cast<int>(last), cause, std::chrono::nanoseconds(behind)};
  }

  std::vector<rank_statistics> rows_;
  std::vector<std::uint64_t> times_;
};

}  // namespace gradweave::detail
