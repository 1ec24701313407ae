/// @file
/// Buckets that let communication end as early as possible, from when gradients became ready and what a collective costs.
///
/// The model of merged-gradient communication (Shi, Chu and Li, MG-WFBP, INFOCOM 2019): buckets are runs of gradients in
/// the order in which they become ready; one begins when it is complete and the one before has ended.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bucketing {

namespace detail {

/// Slots in the order in which they become ready, and after which of them a bucket of their kind ends.
class merger {
 public:
  merger(std::span<const slot_size> slots, std::span<const ready_event> observed, std::size_t bucket_bytes_max,
         const collective_cost& cost)
      : bucket_bytes_max_(std::max<std::size_t>(1, bucket_bytes_max)), cost_(cost) {
    std::vector<double> ready_s(slots.size(), 0);
    double last_s = 0;
    for (const ready_event& event : observed) {
      last_s = std::max(last_s, std::chrono::duration<double>(event.when).count());
      ready_s[event.which.index] = last_s;
    }
    for (const slot which : order_of_readiness(slots.size(), observed)) {
      // What never became ready goes last, and so does its time: at the end it is there.
      last_ready_s_ = std::max(last_ready_s_, ready_s[which.index]);
      const slot_size& size = slots[which.index];
      items_.push_back({which, size.kind, size.bytes, last_ready_s_});
      if (std::find(kinds_.begin(), kinds_.end(), size.kind) == kinds_.end()) {
        kinds_.push_back(size.kind);
      }
    }
    bucket_bytes_.resize(items_.size(), none);
  }

  bucket_plan plan() {
    for (const element_kind kind : kinds_) {
      merge(kind);
    }
    constexpr int rounds_max = 8;
    double end_s = end();
    for (int round = 0; round < rounds_max && kinds_.size() > 1; ++round) {
      for (const element_kind kind : kinds_) {
        merge(kind);
      }
      if (!(end() < end_s)) {
        break;
      }
      end_s = end();
    }
    return cut();
  }

 private:
  static constexpr std::size_t none = SIZE_MAX;

  struct item {
    slot which;
    element_kind kind;
    std::size_t bytes;
    double ready_s;
  };

  /// Where the lane is once a bucket that ends with item `at` is through.
  double after(double free_s, std::size_t at, std::size_t bytes) const {
    return std::max(free_s, items_[at].ready_s) + cost_.seconds(bytes);
  }

  /// When all buckets are through.
  double end() const {
    double free_s = 0;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      free_s = bucket_bytes_[i] == none ? free_s : after(free_s, i, bucket_bytes_[i]);
    }
    return free_s;
  }

  /// Merges the slots of one kind so that the lane is free as early as possible, where the buckets of other kinds are as
  /// they are. Dynamic programming over where the last bucket begins: whatever follows ends the earlier, the earlier the
  /// lane is free, so the best beginning of the best whole is the best of its length.
  void merge(element_kind kind) {
    struct best {
      double free_s = std::numeric_limits<double>::infinity();
      std::size_t begin = 0;
      std::size_t bytes = 0;
    };
    std::vector<best> until(items_.size() + 1);  // items [0, i), of which the last is of the kind
    until[0].free_s = 0;
    std::size_t last = 0;
    for (std::size_t begin = 0; begin < items_.size(); ++begin) {
      if (begin != 0 && items_[begin - 1].kind != kind) {
        continue;
      }
      double free_s = until[begin].free_s;
      std::size_t bytes = 0;
      for (std::size_t i = begin; i < items_.size() && bytes < bucket_bytes_max_; ++i) {
        if (items_[i].kind == kind) {
          bytes += items_[i].bytes;
          if (const double then_s = after(free_s, i, bytes); then_s < until[i + 1].free_s) {
            until[i + 1] = {then_s, begin, bytes};
          }
          last = i + 1;
        } else if (bucket_bytes_[i] != none) {
          free_s = after(free_s, i, bucket_bytes_[i]);
        }
      }
    }
    for (std::size_t i = 0; i < items_.size(); ++i) {
      bucket_bytes_[i] = items_[i].kind == kind ? none : bucket_bytes_[i];
    }
    for (; last != 0; last = until[last].begin) {
      bucket_bytes_[last - 1] = until[last].bytes;
    }
  }

  bucket_plan cut() const {
    std::vector<std::vector<slot>> open(kinds_.size());
    bucket_plan made;
    for (std::size_t i = 0; i < items_.size(); ++i) {
      const auto kind = std::find(kinds_.begin(), kinds_.end(), items_[i].kind) - kinds_.begin();
      std::vector<slot>& members = open[static_cast<std::size_t>(kind)];
      members.push_back(items_[i].which);
      if (bucket_bytes_[i] != none) {
        made.buckets.push_back(std::exchange(members, {}));
      }
    }
    return made;
  }

  std::size_t bucket_bytes_max_;
  collective_cost cost_;
  std::vector<item> items_;
  std::vector<element_kind> kinds_;
  std::vector<std::size_t> bucket_bytes_;  // item: what the bucket holds that ends with it, or none
  double last_ready_s_ = 0;
};

}  // namespace detail

/// What: of all ways to merge gradients, in the order in which they became ready on rank 0, into buckets, the one whose
/// communication ends first if each bucket takes `cost`. Models: bucketing_policy. Semantics: begins as fixed_bytes does;
/// plans anew after step 0, and after step 1, since ready times of a cold start mislead. Exact where all slots are of one
/// kind; of several, each kind's buckets are the best beside those of the others. A bucket is closed once it has reached
/// `caps.bucket_bytes_max`, which DISTRIBUTED_BUCKET_SIZE overrides. Cost: the square of the number of slots, on rank 0,
/// when it plans. Failure: contract_violation on a malformed variable or costs that are no times.
/// Example: `bucketing::merge_optimal{.cost = bucketing::measure_cost(backend)}`.
struct merge_optimal {
  bucket_caps caps = {};
  collective_cost cost = {};

  friend bool operator==(const merge_optimal&, const merge_optimal&) = default;

  bucket_plan plan(const bucketing_input& input) const {
    cost.check();
    if (input.observed.empty()) {
      return fixed_bytes{caps}.plan(input);
    }
    return detail::merger(input.slots, input.observed, caps.bucket_bytes_max, cost).plan();
  }

  bool replans_after(std::uint64_t step) const { return step <= 1; }

  merge_optimal with_environment() const { return {caps.with_environment(), cost}; }

  void describe(description& sink) const {
    sink.add("name", "merge_optimal");
    caps.describe(sink);
    cost.describe(sink);
  }
};

static_assert(bucketing_policy<merge_optimal>);

}  // namespace gradweave::bucketing
