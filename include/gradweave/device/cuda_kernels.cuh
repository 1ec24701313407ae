/// @file
/// device_kernels for CUDA, compiled by nvcc.
#pragma once

#include <cuda_runtime.h>

#include <gradweave/device/basic_cuda_kernels.cuh>

namespace gradweave {

namespace detail {

struct cuda_launcher {
  template <class... Parameters>
  static void launch(unsigned blocks, unsigned threads, cudaStream_t on, void (*kernel)(Parameters...),
                     const Parameters&... arguments) {
    kernel<<<blocks, threads, 0, on>>>(arguments...);
  }
};

}  // namespace detail

/// Models device_kernels, on memory of the device that is current where it is made.
using cuda_kernels = basic_cuda_kernels<detail::cuda_launcher>;

}  // namespace gradweave
