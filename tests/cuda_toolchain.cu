// Shows that nvcc accepts the library's headers and that a kernel links. It is built, never run.
#include <cuda_runtime_api.h>

#include <gradweave/gradweave.hpp>

__global__ void scale(float* values, int count, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) {
    values[i] *= factor;
  }
}

int main() {
  scale<<<1, 32>>>(nullptr, 0, 1.0F);
  return gradweave::version_major >= 0 && cudaDeviceSynchronize() == cudaSuccess ? 0 : 1;
}
