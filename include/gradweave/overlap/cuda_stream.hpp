/// @file
/// `cuda_stream<Kernels>`: overlap on a CUDA stream of the lane's own, beside the trainer's.
#pragma once

#include <chrono>

#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/device/cuda.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/overlap/watching_thread.hpp>

namespace gradweave::overlap {

struct cuda_stream_options {
  device::cuda_options device = {};  ///< which, and the priority of its stream
  /// How long a step that all ranks have enqueued may take on the device, and how long a rank waits for the others before it
  /// asks the backend's control who is missing.
  std::chrono::milliseconds deadline = std::chrono::minutes(5);

  friend bool operator==(const cuda_stream_options&, const cuda_stream_options&) = default;
};

/// What: each bucket is enqueued on a stream as soon as the host knows it complete, behind the events of its gradients. Models:
/// stream_overlap_policy. Semantics: nothing waits for the device but set-up, and the steps after which plans may change.
/// Cost: a stream, an event a gradient, a thread that sleeps while nothing is under way. Threading: see watching_thread.
/// Failure: what the device or another rank does not do in time ends the job on all ranks.
/// Example: `gradweave::overlap::cuda_stream<gradweave::cuda_kernels>{{.deadline = std::chrono::minutes(1)}}`.
template <device_kernels Kernels>
struct cuda_stream {
  cuda_stream_options options = {};

  friend bool operator==(const cuda_stream&, const cuda_stream&) = default;

  device::cuda<Kernels> make_device() const { return device::cuda<Kernels>(options.device); }
  std::chrono::milliseconds deadline() const { return options.deadline; }

  template <lane_work Work>
  watching_thread::watching_lane<Work> make_lane(Work& work) const {
    return watching_thread{}.make_lane(work);
  }

  /// The device's number is each rank's own.
  void describe(description& sink) const {
    sink.add("name", "cuda_stream");
    sink.add("highest_priority", options.device.highest_priority);
    sink.add("deadline_ms", options.deadline.count());
  }
};

}  // namespace gradweave::overlap
