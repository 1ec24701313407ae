/// @file
/// What a step does to gradients around their reduction, so that they end as the average that was asked for.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/step_rules.hpp>

namespace gradweave::detail {

class averager {
 public:
  averager(const step_rules& rules, int size) : rules_(rules), ranks_(static_cast<std::uint32_t>(size)) {}

  /// What programs divide their sums by.
  std::uint32_t divisor() const {
    return rules_.average != averaging::sum && rules_.divide == division::after ? ranks_ : 1;
  }

  /// Whether weigh() has to be called in each step.
  bool is_weighted() const { return rules_.is_weighted(); }

  /// Makes of the mean over ranks the mean over samples, of which this rank has `own` and the ranks have `all`. Of no
  /// samples at all the mean is 0.
  void weigh(std::uint64_t own, std::span<const std::uint64_t> all) {
    const double total = std::accumulate(all.begin(), all.end(), 0.0);
    weight_ = total == 0 ? 0 : static_cast<double>(own) * ranks_ / total;
  }

  /// Before a bucket is reduced.
  void prepare(element_kind kind, std::span<const extent> memory) const {
    if (rules_.divide == division::before) {
      for (const extent& each : memory) {
        divide(kind, each.memory, each.bytes / element_bytes(kind), ranks_);
      }
    } else {
      scale_all(kind, memory, rules_.divide == division::split ? 1 / std::sqrt(ranks_) : weight_);
    }
  }

  /// After it.
  void complete(element_kind kind, std::span<const extent> memory) const {
    scale_all(kind, memory, rules_.divide == division::split ? 1 / std::sqrt(ranks_) : 1);
  }

 private:
  static void scale_all(element_kind kind, std::span<const extent> memory, double factor) {
    if (factor != 1) {
      for (const extent& each : memory) {
        scale(kind, each.memory, each.bytes / element_bytes(kind), factor);
      }
    }
  }

  step_rules rules_;
  std::uint32_t ranks_;
  double weight_ = 1;
};

}  // namespace gradweave::detail
