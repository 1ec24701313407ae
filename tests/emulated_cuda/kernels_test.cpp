// Kernels on the emulated device: what their twins do, in stream order and on memory that the host can't touch.
#include "tests/emulated_cuda/kernels.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/kernel_trials.hpp"

namespace emulated = emulated_cuda;
namespace gw = gradweave;

static_assert(gw::explain_device_kernels<emulated::kernels>());

namespace {

/// Emulated memory as kernel_trials.hpp asks for it.
class emulated_memory {
 public:
  emulated_memory() { CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }

  std::byte* allocate(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    return static_cast<std::byte*>(memory);
  }
  void write(void* to, const void* from, std::size_t bytes) {
    REQUIRE(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_) == cudaSuccess);
    synchronize();
  }
  void read(void* to, const void* from, std::size_t bytes) {
    REQUIRE(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_) == cudaSuccess);
  }
  cudaStream_t stream() const { return stream_; }
  void synchronize() { REQUIRE(cudaStreamSynchronize(stream_) == cudaSuccess); }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

TEST_CASE("emulated kernels: leave on the device what their twins leave on the host") {
  const gradweave::testing::watchdog dog("emulated kernels");
  const emulated::session session;
  emulated_memory memory;
  CHECK(gw::tests::compare_with_twins(emulated::kernels{}, memory, 3) == "");
}

TEST_CASE("emulated kernels: return before the stream gets there, and tell CUDA's error") {
  const gradweave::testing::watchdog dog("emulated kernels: order");
  const emulated::session session;
  emulated_memory memory;
  const emulated::kernels kernels;
  auto* const value = reinterpret_cast<float*>(memory.allocate(sizeof(float)));
  const float two = 2;
  memory.write(value, &two, sizeof(two));
  emulated::hold(memory.stream());
  const gw::scale_request doubles{gw::element_kind::float32, reinterpret_cast<std::byte*>(value), 1, 2};
  kernels.scale(memory.stream(), doubles);
  kernels.scale(memory.stream(), doubles);
  CHECK(cudaStreamQuery(memory.stream()) == cudaErrorNotReady);
  emulated::release(memory.stream());
  float seen = 0;
  memory.read(&seen, value, sizeof(seen));
  CHECK(seen == 8);
  emulated::fail_call("cudaLaunchHostFunc", 1, cudaErrorLaunchFailure);
  CHECK_THROWS_WITH_AS(kernels.scale(memory.stream(), doubles),
                       doctest::Contains("scale: cudaErrorLaunchFailure: unspecified launch failure"), gw::sync_error);
}
