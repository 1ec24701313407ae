#include <gradweave/overlap/cuda_stream.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/emulated_cuda/control.hpp"
#include "tests/emulated_cuda/kernels.hpp"

using namespace gradweave;
using tested_lane = overlap::cuda_stream<emulated_cuda::kernels>;

static_assert(explain_stream_overlap<tested_lane>());

namespace {

/// One rank on a device.
struct lone_backend : testing::stream_backend_archetype {
  using stream = cudaStream_t;
  static constexpr memory_space space = memory_space::cuda;
  static constexpr collective_set capabilities = {collective::all_reduce, collective::all_to_all,
                                                  collective::all_gather, collective::broadcast};

  struct release {
    void operator()(std::byte* memory) const { static_cast<void>(cudaFree(memory)); }
  };
  struct memory {
    std::unique_ptr<std::byte, release> own;
    std::byte* data() const { return own.get(); }
  };
  memory allocate_arena(std::size_t bytes) {
    void* made = nullptr;
    REQUIRE(cudaMalloc(&made, bytes + 1) == cudaSuccess);
    REQUIRE(cudaMemset(made, 0, bytes) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);
    return {std::unique_ptr<std::byte, release>(static_cast<std::byte*>(made))};
  }
  void enqueue(const collective_request&, stream) {}
};

/// Where a gradient lies on a device.
struct device_vector {
  float* memory = nullptr;
  std::size_t elements = 0;

  float* gradweave_data() { return memory; }
  std::array<std::size_t, 1> gradweave_shape() const { return {elements}; }
  memory_space gradweave_space() const { return memory_space::cuda; }
  void gradweave_rebind(void* to) { memory = static_cast<float*>(to); }
};

}  // namespace

TEST_CASE("cuda_stream: a step waits for what the trainer's stream computes, and the verdict is on the device") {
  const testing::watchdog guard("cuda_stream");
  const emulated_cuda::session session;
  {
    cudaStream_t computing = nullptr;
    REQUIRE(cudaStreamCreateWithFlags(&computing, cudaStreamNonBlocking) == cudaSuccess);
    device_vector gradient{nullptr, 100};
    manifest gradients;
    const slot only = gradients.add("only", in_arena(gradient));
    {
      auto sync = synchronize(std::move(gradients), lone_backend{}, tested_lane{});
      sync.step(computing, [&](auto& step) { step.ready(only, computing); });  // a plan may follow: it waits
      emulated_cuda::hold(computing);
      sync.step(computing, [&](auto& step) { step.ready(only, computing); }, {.loss_scale = 8});
      CHECK(sync.statistics().steps == 1);
      emulated_cuda::release(computing);
      CHECK(sync.synchronize().step == 1);
      std::uint32_t is_valid = 0;
      REQUIRE(cudaMemcpy(&is_valid, sync.step_valid(), sizeof is_valid, cudaMemcpyDeviceToHost) == cudaSuccess);
      CHECK(is_valid == 1);
    }
    CHECK(cudaStreamDestroy(computing) == cudaSuccess);
  }
  CHECK(emulated_cuda::to_string(emulated_cuda::live()) == "");
}
