/// @file
/// The conversions of convert.hpp for the vector instructions of instruction_set.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include <gradweave/config.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/instruction_set.hpp>
#include <gradweave/element/loops.hpp>

namespace gradweave::detail {

/// Where nothing better is known: the loops, compiled for those instructions.
template <class Half>
struct vectorized {
  GRADWEAVE_VECTOR_TARGET static std::size_t encode(const std::byte* in, std::byte* out,
                                                    std::size_t elements) noexcept {
    return encode_loop<portable<Half>>(in, out, elements);
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET static void decode(const std::byte* in, std::byte* out, std::size_t elements) noexcept {
    decode_loop<portable<Half>, Mode>(in, out, elements);
  }
};

#if GRADWEAVE_X86_64 || GRADWEAVE_AARCH64

// GNU vectors instead of <immintrin.h>, which takes longer to compile than all else that we include. They are no
// function's parameter by value: without AVX, callers would pass them differently.
using int16_x8 = std::int16_t __attribute__((vector_size(16)));

/// Encodes with Lanes::narrow, which turns eight floats into canonical halves. Returns how many are not finite.
template <class Lanes>
GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE std::size_t encode_lanes(const std::byte* __restrict in,
                                                                         std::byte* __restrict out,
                                                                         std::size_t elements) noexcept {
  using half = typename Lanes::half;
  constexpr std::size_t vectors_max = std::numeric_limits<std::int16_t>::max();  // what a lane of the count can hold
  std::size_t non_finite = 0;
  std::size_t i = 0;
  while (elements - i >= 8) {
    int16_x8 counts = {};
    for (std::size_t vectors = (elements - i) / 8 < vectors_max ? (elements - i) / 8 : vectors_max; vectors > 0;
         --vectors, i += 8) {
      int16_x8 halves;
      Lanes::narrow(in + i * sizeof(float), halves);
      std::memcpy(out + i * sizeof(half), &halves, sizeof(halves));
      counts -= (halves & std::int16_t{0x7fff}) >= Lanes::infinity;  // a comparison that holds is -1
    }
    for (int lane = 0; lane < 8; ++lane) {
      non_finite += static_cast<std::size_t>(counts[lane]);
    }
  }
  for (; i < elements; ++i) {
    non_finite += encode_one<portable<half>>(in, out, i);
  }
  return non_finite;
}

/// float16 by the hardware's conversions.
template <>
struct vectorized<float16> {
  using half = float16;
  static constexpr std::int16_t infinity = float_encoding<element_kind::float16>::infinity;

  GRADWEAVE_VECTOR_TARGET static std::size_t encode(const std::byte* in, std::byte* out,
                                                    std::size_t elements) noexcept {
    return encode_lanes<vectorized>(in, out, elements);
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET static void decode(const std::byte* __restrict in, std::byte* __restrict out,
                                             std::size_t elements) noexcept {
    std::size_t i = 0;
    for (; i + 8 <= elements; i += 8) {
      int16_x8 halves;
      std::memcpy(&halves, in + i * sizeof(half), sizeof(halves));
      make_canonical(halves);
      widen<Mode>(halves, out + i * sizeof(float));
    }
    for (; i < elements; ++i) {
      decode_one<portable<half>, Mode>(in, out, i);
    }
  }

  /// The hardware keeps a NaN's sign and payload.
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void make_canonical(int16_x8& halves) noexcept {
    const int16_x8 nan = (halves & std::int16_t{0x7fff}) > infinity;
    halves = (nan & float_encoding<element_kind::float16>::canonical_nan) | (~nan & halves);
  }

#if GRADWEAVE_X86_64
  using floats = float __attribute__((vector_size(32)));

  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void narrow(const std::byte* from, int16_x8& halves) noexcept {
    floats values;
    std::memcpy(&values, from, sizeof(values));
    // 0: to nearest even, whatever the processor's rounding mode.
    halves = reinterpret_cast<int16_x8>(__builtin_ia32_vcvtps2ph256(values, 0));
    make_canonical(halves);
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void widen(const int16_x8& halves, std::byte* to) noexcept {
    const floats values = __builtin_ia32_vcvtph2ps256(halves);
    put<Mode>(values, to);
  }
#else
  using floats = float __attribute__((vector_size(16)));

  // Instructions by name: gcc 12 and clang share no builtin for them, and gcc takes a generic conversion apart.
  GRADWEAVE_ALWAYS_INLINE static void narrow(const std::byte* from, int16_x8& halves) noexcept {
    floats low;
    floats high;
    std::memcpy(&low, from, sizeof(low));
    std::memcpy(&high, from + sizeof(low), sizeof(high));
    asm("fcvtn %0.4h, %1.4s" : "=w"(halves) : "w"(low));
    asm("fcvtn2 %0.8h, %1.4s" : "+w"(halves) : "w"(high));
    make_canonical(halves);
  }

  template <decode_mode Mode>
  GRADWEAVE_ALWAYS_INLINE static void widen(const int16_x8& halves, std::byte* to) noexcept {
    floats low;
    floats high;
    asm("fcvtl %0.4s, %1.4h" : "=w"(low) : "w"(halves));
    asm("fcvtl2 %0.4s, %1.8h" : "=w"(high) : "w"(halves));
    put<Mode>(low, to);
    put<Mode>(high, to + sizeof(low));
  }
#endif

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void put(const floats& values, std::byte* to) noexcept {
    floats result = values;
    if constexpr (Mode == decode_mode::add) {
      floats before;
      std::memcpy(&before, to, sizeof(before));
      result = before + values;
    }
    std::memcpy(to, &result, sizeof(result));
  }
};

#endif

#if GRADWEAVE_X86_64

/// bfloat16 by hand, since gcc 12 packs the loop's results twice and more. Decoding it gets right.
template <>
struct vectorized<bfloat16> {
  using half = bfloat16;
  static constexpr std::int16_t infinity = float_encoding<element_kind::bfloat16>::infinity;

  GRADWEAVE_VECTOR_TARGET static std::size_t encode(const std::byte* in, std::byte* out,
                                                    std::size_t elements) noexcept {
    return encode_lanes<vectorized>(in, out, elements);
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET static void decode(const std::byte* in, std::byte* out, std::size_t elements) noexcept {
    decode_loop<portable<half>, Mode>(in, out, elements);
  }

  /// The steps of to_bfloat16.
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void narrow(const std::byte* from, int16_x8& halves) noexcept {
    using words = std::uint32_t __attribute__((vector_size(32)));
    using signed_words = std::int32_t __attribute__((vector_size(32)));
    using half_words = std::uint16_t __attribute__((vector_size(16)));
    words given;
    std::memcpy(&given, from, sizeof(given));
    const auto nan = reinterpret_cast<words>(reinterpret_cast<signed_words>(given & 0x7fff'ffffu) > 0x7f80'0000);
    const words bits = (nan & 0x7fc0'0000u) | (~nan & given);
    const words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    halves = reinterpret_cast<int16_x8>(__builtin_convertvector(rounded, half_words));
  }
};

#endif

}  // namespace gradweave::detail
