// Compares kernels with their host twins, bit for bit, on a real device. Without one it says so and passes: the tag `gpu`
// keeps it out of runs that have none.
#include <gradweave/device/cuda_kernels.cuh>

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "tests/support/kernel_trials.hpp"

namespace gw = gradweave;

static_assert(gw::explain_device_kernels<gw::cuda_kernels>());

namespace {

/// Memory of the current device, and a stream.
class device_memory {
 public:
  device_memory() { gw::detail::check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream"); }
  device_memory(const device_memory&) = delete;
  device_memory& operator=(const device_memory&) = delete;
  ~device_memory() {
    free_all();
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  std::byte* allocate(std::size_t bytes) {
    void* memory = nullptr;
    gw::detail::check_cuda(cudaMalloc(&memory, bytes), "allocate");
    allocated_.push_back(memory);
    return static_cast<std::byte*>(memory);
  }
  void write(void* to, const void* from, std::size_t bytes) {
    gw::detail::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "write");
    synchronize();
  }
  void read(void* to, const void* from, std::size_t bytes) {
    gw::detail::check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "read");
    synchronize();
  }
  cudaStream_t stream() const { return stream_; }
  void synchronize() { gw::detail::check_cuda(cudaStreamSynchronize(stream_), "synchronize"); }
  void free_all() {
    for (void* const memory : allocated_) {
      static_cast<void>(cudaFree(memory));
    }
    allocated_.clear();
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<void*> allocated_;
};

/// Positions beyond 2^31 elements: the last element of a long array is scaled, and nothing beside it. Its memory is all
/// that is asked for, so a device that lacks it passes.
std::string scales_beyond_four_gigabytes(const gw::cuda_kernels& kernels) {
  constexpr std::size_t elements = (std::size_t{1} << 32) + 3;
  gw::float16* values = nullptr;
  if (cudaMalloc(&values, elements * sizeof(gw::float16)) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    std::puts("kernels_test: too little memory for 2^32 elements; that part is skipped");
    return {};
  }
  gw::detail::check_cuda(cudaMemset(values, 0x3c, elements * sizeof(gw::float16)), "memset");
  kernels.scale(nullptr, {gw::element_kind::float16, reinterpret_cast<std::byte*>(values), elements, -1});
  gw::float16 seen[2];
  gw::detail::check_cuda(cudaMemcpy(seen, values + elements - 2, sizeof(seen), cudaMemcpyDeviceToHost), "read");
  static_cast<void>(cudaFree(values));
  const gw::float16 expected{0xbc3c};
  return seen[0] == expected && seen[1] == expected ? "" : "scale misses elements beyond 2^32";
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("kernels_test: there is no CUDA device; nothing was run");
    return 0;
  }
  try {
    const gw::cuda_kernels kernels;
    std::string difference;
    for (std::uint64_t seed = 1; seed <= 200 && difference.empty(); ++seed) {
      device_memory memory;
      gw::tests::kernel_trial<gw::cuda_kernels, device_memory> trial(kernels, memory, seed);
      difference = trial.run();
      difference += difference.empty() ? "" : " differs from its twin with seed " + std::to_string(seed);
    }
    difference += scales_beyond_four_gigabytes(kernels);
    std::puts(difference.empty() ? "kernels_test: kernels and twins agree" : difference.c_str());
    return difference.empty() ? 0 : 1;
  } catch (const std::exception& error) {
    std::puts(error.what());
    return 1;
  }
}
