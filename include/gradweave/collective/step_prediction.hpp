/// @file
/// How long a training step takes where buckets are summed while the backward pass runs: one after the other, in their
/// order, each as soon as it is ready and the one before is done. That is what a lane does.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <gradweave/assert.hpp>

namespace gradweave {

/// A bucket, and when the backward pass has it ready, counted from the pass's beginning.
struct timed_bucket {
  std::size_t bytes = 0;
  double ready_s = 0;
};

struct step_prediction {
  double step_s = 0;           ///< from the backward pass's beginning until all is summed
  double communication_s = 0;  ///< of all buckets together
  double exposed_s = 0;        ///< by which the step is longer than its backward pass

  /// How much of the communication the backward pass hides, 0 to 1; 1 where there is none.
  double hidden_share() const {
    return communication_s == 0 ? 1 : std::clamp(1 - exposed_s / communication_s, 0.0, 1.0);
  }
};

/// When each bucket is summed, counted as they are ready. `seconds_of(bytes)` is what a bucket's collectives take.
template <class SecondsOf>
std::vector<double> bucket_ends(std::span<const timed_bucket> buckets, SecondsOf&& seconds_of) {
  std::vector<double> ends;
  double free_s = 0;
  for (const timed_bucket& bucket : buckets) {
    free_s = std::max(free_s, bucket.ready_s) + seconds_of(bucket.bytes);
    ends.push_back(free_s);
  }
  return ends;
}

/// `seconds_of(bytes)` is what a bucket's collectives take. Throws contract_violation where a bucket is ready before the
/// backward pass begins or after it ends.
template <class SecondsOf>
step_prediction predict_step(std::span<const timed_bucket> buckets, double backward_s, SecondsOf&& seconds_of) {
  require(std::isfinite(backward_s) && backward_s >= 0, "predict_step: the backward pass takes no negative time");
  step_prediction result;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const timed_bucket& bucket = buckets[i];
    if (!(bucket.ready_s >= 0 && bucket.ready_s <= backward_s)) {
      violate("predict_step: bucket " + std::to_string(i) + " is ready at " + std::to_string(bucket.ready_s) +
              " s, outside of the backward pass, which takes " + std::to_string(backward_s) + " s");
    }
    result.communication_s += seconds_of(bucket.bytes);
  }
  const std::vector<double> ends = bucket_ends(buckets, seconds_of);
  result.step_s = ends.empty() ? backward_s : std::max(ends.back(), backward_s);
  result.exposed_s = result.step_s - backward_s;
  return result;
}

/// The buckets of a model whose gradients become ready evenly over the backward pass, all of `bucket_bytes` but the last.
inline std::vector<timed_bucket> even_buckets(std::size_t model_bytes, std::size_t bucket_bytes, double backward_s) {
  require(bucket_bytes != 0, "even_buckets: a bucket has one byte at least");
  std::vector<timed_bucket> buckets;
  for (std::size_t begin = 0; begin < model_bytes;) {
    const std::size_t bytes = std::min(bucket_bytes, model_bytes - begin);
    begin += bytes;
    const bool is_last = begin == model_bytes;
    const double share = static_cast<double>(begin) / static_cast<double>(model_bytes);
    buckets.push_back({bytes, is_last ? backward_s : share * backward_s});
  }
  return buckets;
}

}  // namespace gradweave
