/// @file
/// One operation, correctly rounded, on host and device alike: also where nvcc is told -use_fast_math, which flushes
/// subnormals and approximates quotients.
#pragma once

#include <gradweave/config.hpp>
#include <gradweave/element/quotient.hpp>

namespace gradweave::detail {

/// On the host under the processor's modes, as all our sums of floats.
GRADWEAVE_HOST_DEVICE inline float rounded_sum(float a, float b) noexcept {
#if GRADWEAVE_DEVICE_PASS
  float sum;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
  return sum;
#else
  return a + b;
#endif
}

GRADWEAVE_HOST_DEVICE inline float rounded_product(float a, float b) noexcept {
#if GRADWEAVE_DEVICE_PASS
  float product;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
  return product;
#else
  return a * b;
#endif
}

GRADWEAVE_HOST_DEVICE inline double rounded_product(double a, double b) noexcept {
#if GRADWEAVE_DEVICE_PASS
  double product;
  asm("mul.rn.f64 %0, %1, %2;" : "=d"(product) : "d"(a), "d"(b));
  return product;
#else
  return a * b;
#endif
}

GRADWEAVE_HOST_DEVICE inline float rounded_quotient(float a, float b) noexcept {
#if GRADWEAVE_DEVICE_PASS
  float quotient;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(quotient) : "f"(a), "f"(b));
  return quotient;
#else
  divide_by(a, b);
  return a;
#endif
}

}  // namespace gradweave::detail
