// ResNet-50's gradients (He et al., Deep residual learning for image recognition, CVPR 2016, table 1), and when a backward
// pass has them ready, if it takes as long for each layer as that has multiplications.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/collective/step_prediction.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::bench {

struct observed_model {
  std::vector<slot_size> slots;
  std::vector<ready_event> observed;
  std::vector<double> work;  ///< slot: its layer's part of a pass

  /// When the buckets of a plan are complete.
  std::vector<timed_bucket> timed(const bucket_plan& plan) const {
    std::vector<double> ready_s(slots.size());
    for (const ready_event& event : observed) {
      ready_s[event.which.index] = std::chrono::duration<double>(event.when).count();
    }
    std::vector<timed_bucket> buckets(plan.buckets.size());
    for_each_slice(plan, slots, [&](std::size_t bucket, slot which, slot_slice part) {
      buckets[bucket].bytes += part.elements * element_bytes(slots[which.index].kind);
      buckets[bucket].ready_s = std::max(buckets[bucket].ready_s, ready_s[which.index]);
    });
    return buckets;
  }

  /// When the next forward pass ends that begins with the end of the backward pass and waits for each gradient, where the
  /// plan's buckets are summed at `ends`.
  double next_forward_end(const bucket_plan& plan, std::span<const double> ends, double backward_s,
                          double forward_s) const {
    std::vector<double> summed_s(slots.size());
    for (std::size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) {
      for (const slot which : plan.buckets[bucket]) {
        summed_s[which.index] = ends[bucket];
      }
    }
    double now_s = backward_s;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      now_s = std::max(now_s, summed_s[i]) + work[i] * forward_s;
    }
    return now_s;
  }
};

/// In float32, for images of 224 x 224. With many classes the last layer is large, and its gradient is the first.
inline observed_model resnet50(double backward_s, std::size_t classes = 1000) {
  observed_model model;
  std::vector<double>& work = model.work;  // at first multiplications, in the slot whose gradient comes last
  const auto add = [&](std::size_t elements, double multiplications) {
    model.slots.push_back({element_kind::float32, 4 * elements});
    work.push_back(multiplications);
  };
  const auto convolution = [&](std::size_t in, std::size_t out, std::size_t width, std::size_t image) {
    const std::size_t elements = in * out * width * width;
    add(elements, static_cast<double>(elements) * static_cast<double>(image * image));
    add(out, 0);  // the normalization's scale and offset
    add(out, 0);
  };
  convolution(3, 64, 7, 112);
  std::size_t in = 64;
  std::size_t image = 56;
  std::size_t inner = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(in, inner, 1, block == 0 && inner != 64 ? 2 * image : image);
      convolution(inner, inner, 3, image);
      convolution(inner, 4 * inner, 1, image);
      if (block == 0) {
        convolution(in, 4 * inner, 1, image);
      }
      in = 4 * inner;
    }
    inner *= 2;
    image /= 2;
  }
  add(in * classes, static_cast<double>(in * classes));
  add(classes, 0);
  double all = 0;
  std::ranges::for_each(work, [&](double each) { all += each; });
  std::ranges::for_each(work, [&](double& each) { each /= all; });
  double done = 0;
  for (std::size_t i = model.slots.size(); i-- > 0;) {
    done += work[i];
    const std::chrono::duration<double> when(std::min(1.0, done) * backward_s);
    model.observed.push_back(
        {{static_cast<std::uint32_t>(i)}, std::chrono::duration_cast<std::chrono::nanoseconds>(when)});
  }
  return model;
}

}  // namespace gradweave::bench
