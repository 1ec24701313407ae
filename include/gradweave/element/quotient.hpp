/// @file
/// Correctly rounded division of floats by one divisor. By instructions that are named, since under -ffast-math
/// compilers multiply by a rounded reciprocal, or refine an estimate of it, and no attribute that gcc and clang share
/// forbids that.
#pragma once

#include <cstddef>
#include <cstring>

#include <gradweave/config.hpp>
#include <gradweave/element/instruction_set.hpp>
#include <gradweave/element/loops.hpp>

namespace gradweave::detail {

#if GRADWEAVE_X86_64

using float_vector = float __attribute__((vector_size(32)));
using double_vector = double __attribute__((vector_size(32)));

GRADWEAVE_ALWAYS_INLINE void divide_by(float& value, const float& divisor) noexcept {
  asm("divss {%1, %0|%0, %1}" : "+x"(value) : "x"(divisor));
}

GRADWEAVE_ALWAYS_INLINE void divide_by(double& value, const double& divisor) noexcept {
  asm("divsd {%1, %0|%0, %1}" : "+x"(value) : "x"(divisor));
}

GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE void divide_by(float_vector& value,
                                                               const float_vector& divisor) noexcept {
  asm("vdivps {%1, %0, %0|%0, %0, %1}" : "+x"(value) : "x"(divisor));
}

GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE void divide_by(double_vector& value,
                                                               const double_vector& divisor) noexcept {
  asm("vdivpd {%1, %0, %0|%0, %0, %1}" : "+x"(value) : "x"(divisor));
}

#elif GRADWEAVE_AARCH64

using float_vector = float __attribute__((vector_size(16)));
using double_vector = double __attribute__((vector_size(16)));

GRADWEAVE_ALWAYS_INLINE void divide_by(float& value, const float& divisor) noexcept {
  asm("fdiv %s0, %s0, %s1" : "+w"(value) : "w"(divisor));
}

GRADWEAVE_ALWAYS_INLINE void divide_by(double& value, const double& divisor) noexcept {
  asm("fdiv %d0, %d0, %d1" : "+w"(value) : "w"(divisor));
}

GRADWEAVE_ALWAYS_INLINE void divide_by(float_vector& value, const float_vector& divisor) noexcept {
  asm("fdiv %0.4s, %0.4s, %1.4s" : "+w"(value) : "w"(divisor));
}

GRADWEAVE_ALWAYS_INLINE void divide_by(double_vector& value, const double_vector& divisor) noexcept {
  asm("fdiv %0.2d, %0.2d, %1.2d" : "+w"(value) : "w"(divisor));
}

#else

using float_vector = float;
using double_vector = double;

template <class T>
GRADWEAVE_ALWAYS_INLINE void divide_by(T& value, const T& divisor) noexcept {
  const volatile T opaque = divisor;  // what may have changed has no reciprocal worth keeping
  value = value / opaque;
}

#endif

template <class T>
struct vector_of;

template <>
struct vector_of<float> {
  using type = float_vector;
};

template <>
struct vector_of<double> {
  using type = double_vector;
};

template <class T>
void divide_portable(std::byte* values, std::size_t elements, T divisor) noexcept {
  for (std::size_t i = 0; i < elements; ++i) {
    T value = load<T>(values + i * sizeof(T));
    divide_by(value, divisor);
    store(values + i * sizeof(T), value);
  }
}

template <class T>
GRADWEAVE_VECTOR_TARGET void divide_vectorized(std::byte* values, std::size_t elements, T divisor) noexcept {
  using vector = typename vector_of<T>::type;
  const vector divisors = vector{} + divisor;
  std::size_t bytes = elements * sizeof(T);
  for (; bytes >= sizeof(vector); bytes -= sizeof(vector), values += sizeof(vector)) {
    vector value;
    std::memcpy(&value, values, sizeof(value));
    divide_by(value, divisors);
    std::memcpy(values, &value, sizeof(value));
  }
  vector last = divisors;
  std::memcpy(&last, values, bytes);
  divide_by(last, divisors);
  std::memcpy(values, &last, bytes);
}

/// values[i] /= divisor for float or double, on a path that must be supported.
template <class T>
void divide_floats(instruction_set set, std::byte* values, std::size_t elements, T divisor) noexcept {
  if (set == instruction_set::portable) {
    divide_portable(values, elements, divisor);
  } else {
    divide_vectorized(values, elements, divisor);
  }
}

}  // namespace gradweave::detail
