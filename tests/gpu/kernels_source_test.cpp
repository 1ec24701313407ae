// The source of the kernels, run on the host beside their twins. host_grid.hpp comes first: it is what the source is compiled with.
#include "tests/gpu/host_grid.hpp"

#include <gradweave/device/basic_cuda_kernels.cuh>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstring>

#include <doctest/doctest.h>

#include "tests/emulated_cuda/control.hpp"
#include "tests/support/kernel_trials.hpp"

namespace emulated = emulated_cuda;
namespace gw = gradweave;

namespace {

using kernels_on_host = gw::basic_cuda_kernels<host_grid::launcher>;

static_assert(gw::explain_device_kernels<kernels_on_host>());

/// Device memory that the host may touch.
struct open_memory {
  std::byte* allocate(std::size_t bytes) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, bytes) == cudaSuccess);
    return static_cast<std::byte*>(memory);
  }
  void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  cudaStream_t stream() const { return nullptr; }
  void synchronize() {}
};

}  // namespace

TEST_CASE("kernels' source: on the host it leaves the bits of the twins") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const emulated::session session(1);
    emulated::open_memory(true);
    open_memory memory;
    const kernels_on_host kernels;
    CAPTURE(seed);
    CHECK((gw::tests::kernel_trial<kernels_on_host, open_memory>(kernels, memory, seed).run()) == "");
  }
}
