/// @file
/// Ranks over the emulated device and NCCL: threads, a device each, with a loopback between them.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/nccl.hpp>

#include "tests/emulated_cuda/control.hpp"
#include "tests/emulated_cuda/kernels.hpp"

namespace gradweave::tests {

using emulated_nccl = backend::nccl<emulated_cuda::kernels, backend::loopback>;

/// Models stream_rig.
class emulated_rig {
 public:
  emulated_rig() = default;
  emulated_rig(const emulated_rig&) = delete;
  emulated_rig& operator=(const emulated_rig&) = delete;
  ~emulated_rig() {
    for (cudaStream_t each : streams_) {
      static_cast<void>(cudaStreamDestroy(each));
    }
  }

  cudaStream_t make_stream() {
    cudaStream_t made = nullptr;
    CHECK(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking) == cudaSuccess);
    streams_.push_back(made);
    return made;
  }
  void write(cudaStream_t on, std::byte* memory, std::span<const std::byte> from) {
    copy(on, emulated_cuda::alias_of(memory), from.data(), from.size());
  }
  void read(cudaStream_t on, const std::byte* memory, std::span<std::byte> to) {
    copy(on, to.data(), emulated_cuda::alias_of(memory), to.size());
  }
  void hold(cudaStream_t on) { emulated_cuda::hold(on); }
  void release(cudaStream_t on) { emulated_cuda::release(on); }
  bool is_reached(cudaStream_t on) { return cudaStreamQuery(on) == cudaSuccess; }

 private:
  /// By a function of the stream: cudaMemcpyAsync to memory that is not pinned waits for the stream.
  static void copy(cudaStream_t on, std::byte* to, const std::byte* from, std::size_t bytes) {
    struct copying {
      std::byte* to;
      const std::byte* from;
      std::size_t bytes;
    };
    const auto run = [](void* data) {
      const std::unique_ptr<copying> own(static_cast<copying*>(data));
      std::copy_n(own->from, own->bytes, own->to);
    };
    auto carried = std::make_unique<copying>(copying{to, from, bytes});
    CHECK(cudaLaunchHostFunc(on, run, carried.get()) == cudaSuccess);
    static_cast<void>(carried.release());  // the stream has it
  }

  std::vector<cudaStream_t> streams_;
};

/// Runs `body(control, rig)` on a thread for each rank, whose device is chosen.
template <class Body>
void with_devices(int size, Body&& body, std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  backend::run_loopback(size,
                        [&](backend::loopback control) {
                          CHECK(cudaSetDevice(control.rank()) == cudaSuccess);
                          emulated_rig rig;
                          body(std::move(control), rig);
                        },
                        {.timeout = timeout});
}

/// Runs `body(backend, rig)` so.
template <class Body>
void with_nccl(int size, const backend::nccl_options& options, Body&& body) {
  with_devices(size, [&](backend::loopback control, emulated_rig& rig) {
    body(emulated_nccl(std::move(control), {}, options), rig);
  });
}

/// A sum over the ranks of one float, in memory of the backend's.
struct one_float {
  explicit one_float(emulated_nccl& backend) : arena(backend.allocate_arena(sizeof(float))) {
    whole = {arena.data(), sizeof(float), 0};
  }
  collective_request sum() const {
    return {.operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}};
  }
  void put(emulated_rig& rig, cudaStream_t on, const float& value) const {
    rig.write(on, arena.data(), std::as_bytes(std::span(&value, 1)));
  }
  float take(cudaStream_t on) const {
    float value = 0;
    CHECK(cudaMemcpyAsync(&value, arena.data(), sizeof value, cudaMemcpyDeviceToHost, on) == cudaSuccess);
    CHECK(cudaStreamSynchronize(on) == cudaSuccess);
    return value;
  }

  detail::nccl_memory arena;
  extent whole;
};

}  // namespace gradweave::tests
