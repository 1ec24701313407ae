/// @file
/// `device::cuda<Kernels>`: a device as lanes on streams ask for it, over the CUDA runtime. Host code: any compiler takes it,
/// and kernels come from one that knows them.
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <gradweave/device/concept.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/error.hpp>

namespace gradweave::device {

/// What a device may be told.
struct cuda_options {
  int device = -1;               ///< its number; -1: the one that is current where the device is made
  bool highest_priority = true;  ///< of streams: what is on them comes before the trainer's kernels

  friend bool operator==(const cuda_options&, const cuda_options&) = default;
};

/// Models stream_device.
template <device_kernels Kernels>
  requires std::same_as<typename Kernels::stream, cudaStream_t> && std::default_initializable<Kernels>
class cuda {
  template <auto Destroy>
  struct destroying {
    template <class Handle>
    void operator()(Handle* handle) const noexcept {
      static_cast<void>(Destroy(handle));
    }
  };
  template <class Handle, auto Destroy>
  using owner = std::unique_ptr<std::remove_pointer_t<Handle>, destroying<Destroy>>;

 public:
  using stream = cudaStream_t;
  using event = owner<cudaEvent_t, &cudaEventDestroy>;
  using stream_owner = owner<cudaStream_t, &cudaStreamDestroy>;

  class pinned_memory {
   public:
    explicit pinned_memory(std::byte* memory) : memory_(memory) {}
    std::byte* data() const { return memory_.get(); }

   private:
    struct release {
      void operator()(std::byte* memory) const noexcept { static_cast<void>(cudaFreeHost(memory)); }
    };
    std::unique_ptr<std::byte, release> memory_;
  };

  /// Throws sync_error without such a device.
  explicit cuda(cuda_options options = {}) : options_(options) {
    if (options_.device < 0) {
      check(cudaGetDevice(&options_.device), "the current device");
    }
    const scope current(options_.device);
    kernels_ = std::make_unique<Kernels>();
  }

  void enter() const { check(cudaSetDevice(options_.device), "to make a device current"); }

  stream_owner make_stream() const {
    const scope current(options_.device);
    int least = 0, greatest = 0;
    check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "the range of priorities");
    cudaStream_t made = nullptr;
    check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, options_.highest_priority ? greatest : least),
          "to make a stream");
    return stream_owner(made);
  }

  event make_event() const {
    const scope current(options_.device);
    cudaEvent_t made = nullptr;
    check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "to make an event");
    return event(made);
  }

  void record(event& which, stream on) const { check(cudaEventRecord(which.get(), on), "to record an event"); }
  void wait(stream on, const event& which) const {
    check(cudaStreamWaitEvent(on, which.get(), 0), "to make a stream wait");
  }

  bool is_reached(const event& which) const {
    const cudaError_t code = cudaEventQuery(which.get());
    if (code == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());  // or the next launch would be taken for what failed
      return false;
    }
    check(code, "to ask for an event");
    return true;
  }

  pinned_memory allocate_pinned(std::size_t bytes) const {
    const scope current(options_.device);
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes == 0 ? 1 : bytes, cudaHostAllocDefault), "to allocate pinned memory");
    std::memset(memory, 0, bytes);
    return pinned_memory(static_cast<std::byte*>(memory));
  }

  void copy_to_host(stream on, std::byte* pinned, const std::byte* memory, std::size_t bytes) const {
    check(cudaMemcpyAsync(pinned, memory, bytes, cudaMemcpyDeviceToHost, on), "to copy to the host");
  }

  void synchronize(stream on) const { check(cudaStreamSynchronize(on), "to wait for a stream"); }

  const Kernels& kernels() const { return *kernels_; }

 private:
  /// Throws sync_error with CUDA's words.
  static void check(cudaError_t code, const char* what) {
    if (code != cudaSuccess) {
      failure cause;
      cause.detail =
          std::string("device::cuda: ") + what + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code);
      throw sync_error(std::move(cause));
    }
  }

  /// The device is current from here to the end of the scope.
  class scope {
   public:
    explicit scope(int device) {
      check(cudaGetDevice(&before_), "the current device");
      check(cudaSetDevice(device), "to make a device current");
    }
    scope(const scope&) = delete;
    scope& operator=(const scope&) = delete;
    ~scope() { static_cast<void>(cudaSetDevice(before_)); }

   private:
    int before_ = 0;
  };

  cuda_options options_;
  std::unique_ptr<Kernels> kernels_;  // stay where they are
};

}  // namespace gradweave::device
