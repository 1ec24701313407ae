/// @file
/// How far this rank's steady clock is from rank 0's.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace gradweave {

/// A step's last collective ends on all ranks at about the same time; each rank tells the others when that was on its own
/// clock. The median over the last steps is off by about what a small message takes. Allocates nothing.
class clock_offset {
 public:
  /// What rank 0's clock showed at such a moment, less what this rank's showed.
  void add(std::int64_t ns) {
    constexpr std::int64_t most = std::int64_t{1} << 60;  // 36 years: whatever rank 0 says, sums do not overflow
    seen_[count_++ % seen_.size()] = std::clamp(ns, -most, most);
  }

  /// What to add to a time of this rank's, to have it on rank 0's clock. Less than a millisecond is the error of the
  /// measurement: it is one clock, as between processes of one host.
  std::int64_t ns() const {
    auto sorted = seen_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, sorted.size()) / 2);
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count_, sorted.size()));
    if (middle == end) {
      return 0;
    }
    std::nth_element(sorted.begin(), middle, end);
    constexpr std::int64_t one_clock_ns = 1'000'000;
    return *middle > -one_clock_ns && *middle < one_clock_ns ? 0 : *middle;
  }

 private:
  std::array<std::int64_t, 64> seen_{};
  std::size_t count_ = 0;
};

}  // namespace gradweave
