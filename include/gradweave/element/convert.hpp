/// @file
/// Conversions over spans between float and the 16-bit formats, at memory speed. Every path (portable, AVX2 with F16C,
/// NEON) yields the bits of to_float16, to_bfloat16 and to_float32, and so does every path under flush-to-zero,
/// denormals-are-zero and -ffast-math: bits are moved by integer instructions, or by the hardware's conversions between
/// binary16 and binary32, for which the modes are without effect (a binary32 subnormal rounds to zero either way, and
/// binary16 subnormals are exempt by definition). Rounding is to nearest even; on aarch64 a program that changes the
/// processor's rounding mode changes it here too.
///
/// In all of them the spans have equal sizes, must not overlap, and need no alignment beyond their elements'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <gradweave/assert.hpp>
#include <gradweave/config.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/instruction_set.hpp>

namespace gradweave {

namespace detail {

/// Elements are read and written as bytes, so that memory which the caller sees as his own element type may be used.
template <class T>
GRADWEAVE_ALWAYS_INLINE T load(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
GRADWEAVE_ALWAYS_INLINE void store(std::byte* to, T value) noexcept {
  std::memcpy(to, &value, sizeof(T));
}

/// Loops run over blocks of this many elements, because gcc 12 vectorizes at -O2 only where the trip count is known.
inline constexpr std::size_t block_elements = 32;

/// How one element is converted: a loop's parameter.
template <class Half>
struct portable;

template <>
struct portable<float16> {
  using half = float16;
  GRADWEAVE_ALWAYS_INLINE static float16 encode(float value) noexcept { return to_float16(value); }
  GRADWEAVE_ALWAYS_INLINE static float decode(float16 value) noexcept { return to_float32(value); }
};

template <>
struct portable<bfloat16> {
  using half = bfloat16;
  GRADWEAVE_ALWAYS_INLINE static bfloat16 encode(float value) noexcept { return to_bfloat16(value); }
  GRADWEAVE_ALWAYS_INLINE static float decode(bfloat16 value) noexcept { return to_float32(value); }
};

/// Converts element i; 1 where the result is not finite.
template <class Format>
GRADWEAVE_ALWAYS_INLINE std::uint16_t encode_one(const std::byte* in, std::byte* out, std::size_t i) noexcept {
  const typename Format::half value = Format::encode(load<float>(in + i * sizeof(float)));
  store(out + i * sizeof(value), value);
  return is_finite(value) ? 0 : 1;
}

template <class Format>
GRADWEAVE_ALWAYS_INLINE std::size_t encode_loop(const std::byte* __restrict in, std::byte* __restrict out,
                                                std::size_t elements) noexcept {
  std::size_t non_finite = 0;
  std::size_t i = 0;
  for (; i + block_elements <= elements; i += block_elements) {
    std::uint16_t in_block = 0;  // as wide as the elements, so that the count stays in their vectors
    for (std::size_t j = 0; j < block_elements; ++j) {
      in_block = static_cast<std::uint16_t>(in_block + encode_one<Format>(in, out, i + j));
    }
    non_finite += in_block;
  }
  for (; i < elements; ++i) {
    non_finite += encode_one<Format>(in, out, i);
  }
  return non_finite;
}

/// What a decoded element does to the float that it is meant for.
enum class decode_mode : std::uint8_t { assign, add };

template <class Format, decode_mode Mode>
GRADWEAVE_ALWAYS_INLINE void decode_one(const std::byte* in, std::byte* out, std::size_t i) noexcept {
  const float value = Format::decode(load<typename Format::half>(in + i * sizeof(typename Format::half)));
  std::byte* const to = out + i * sizeof(float);
  if constexpr (Mode == decode_mode::add) {
    store(to, load<float>(to) + value);
  } else {
    store(to, value);
  }
}

template <class Format, decode_mode Mode>
GRADWEAVE_ALWAYS_INLINE void decode_loop(const std::byte* __restrict in, std::byte* __restrict out,
                                         std::size_t elements) noexcept {
  std::size_t i = 0;
  for (; i + block_elements <= elements; i += block_elements) {
    for (std::size_t j = 0; j < block_elements; ++j) {
      decode_one<Format, Mode>(in, out, i + j);
    }
  }
  for (; i < elements; ++i) {
    decode_one<Format, Mode>(in, out, i);
  }
}

/// The same loops, compiled for the vector instructions of instruction_set.hpp.
template <class Half>
struct vectorized {
  GRADWEAVE_VECTOR_TARGET static std::size_t encode(const std::byte* in, std::byte* out, std::size_t elements) noexcept {
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

/// binary16 by the hardware's conversions, eight elements at a time.
template <>
struct vectorized<float16> {
  static constexpr std::int16_t sign_off = 0x7fff;
  static constexpr std::int16_t infinity = float_encoding<element_kind::float16>::infinity;
  static constexpr std::int16_t canonical_nan = float_encoding<element_kind::float16>::canonical_nan;

  GRADWEAVE_VECTOR_TARGET static std::size_t encode(const std::byte* __restrict in, std::byte* __restrict out,
                                                    std::size_t elements) noexcept {
    std::size_t non_finite = 0;
    std::size_t i = 0;
    while (elements - i >= 8) {
      int16_x8 counts = {};  // a lane holds 32767 at most, hence rounds of so many vectors
      for (std::size_t vectors = (elements - i) / 8 < 32767 ? (elements - i) / 8 : 32767; vectors > 0; --vectors, i += 8) {
        int16_x8 half;
        narrow(in + i * sizeof(float), half);
        const int16_x8 magnitude = half & sign_off;
        const int16_x8 nan = magnitude > infinity;  // all ones where it holds; the hardware keeps sign and payload
        half = (nan & canonical_nan) | (~nan & half);
        std::memcpy(out + i * sizeof(float16), &half, sizeof(half));
        counts -= magnitude >= infinity;
      }
      for (int lane = 0; lane < 8; ++lane) {
        non_finite += static_cast<std::size_t>(counts[lane]);
      }
    }
    for (; i < elements; ++i) {
      non_finite += encode_one<portable<float16>>(in, out, i);
    }
    return non_finite;
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET static void decode(const std::byte* __restrict in, std::byte* __restrict out,
                                             std::size_t elements) noexcept {
    std::size_t i = 0;
    for (; i + 8 <= elements; i += 8) {
      int16_x8 half;
      std::memcpy(&half, in + i * sizeof(float16), sizeof(half));
      const int16_x8 nan = (half & sign_off) > infinity;
      half = (nan & canonical_nan) | (~nan & half);
      widen<Mode>(half, out + i * sizeof(float));
    }
    for (; i < elements; ++i) {
      decode_one<portable<float16>, Mode>(in, out, i);
    }
  }

 private:
#if GRADWEAVE_X86_64
  using floats = float __attribute__((vector_size(32)));

  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void narrow(const std::byte* from, int16_x8& half) noexcept {
    floats value;
    std::memcpy(&value, from, sizeof(value));
    // 0: to nearest even, whatever the processor's rounding mode.
    half = reinterpret_cast<int16_x8>(__builtin_ia32_vcvtps2ph256(value, 0));
  }

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void widen(const int16_x8& half, std::byte* to) noexcept {
    const floats value = __builtin_ia32_vcvtph2ps256(half);
    put<Mode>(value, to);
  }
#else
  using floats = float __attribute__((vector_size(16)));

  // gcc 12 has no vector builtin that clang has too, and takes a generic conversion apart into scalars.
  GRADWEAVE_ALWAYS_INLINE static void narrow(const std::byte* from, int16_x8& half) noexcept {
    floats low;
    floats high;
    std::memcpy(&low, from, sizeof(low));
    std::memcpy(&high, from + sizeof(low), sizeof(high));
    asm("fcvtn %0.4h, %1.4s" : "=w"(half) : "w"(low));
    asm("fcvtn2 %0.8h, %1.4s" : "+w"(half) : "w"(high));
  }

  template <decode_mode Mode>
  GRADWEAVE_ALWAYS_INLINE static void widen(const int16_x8& half, std::byte* to) noexcept {
    floats low;
    floats high;
    asm("fcvtl %0.4s, %1.4h" : "=w"(low) : "w"(half));
    asm("fcvtl2 %0.4s, %1.8h" : "=w"(high) : "w"(half));
    put<Mode>(low, to);
    put<Mode>(high, to + sizeof(low));
  }
#endif

  template <decode_mode Mode>
  GRADWEAVE_VECTOR_TARGET GRADWEAVE_ALWAYS_INLINE static void put(const floats& value, std::byte* to) noexcept {
    floats result = value;
    if constexpr (Mode == decode_mode::add) {
      floats before;
      std::memcpy(&before, to, sizeof(before));
      result = before + value;
    }
    std::memcpy(to, &result, sizeof(result));
  }
};

#endif

/// convert() on a chosen path, which must be supported. Tests run them all.
template <class Half>
std::size_t encode(instruction_set set, const std::byte* in, std::byte* out, std::size_t elements) noexcept {
  return set == instruction_set::portable ? encode_loop<portable<Half>>(in, out, elements)
                                          : vectorized<Half>::encode(in, out, elements);
}

template <class Half, decode_mode Mode>
void decode(instruction_set set, const std::byte* in, std::byte* out, std::size_t elements) noexcept {
  if (set == instruction_set::portable) {
    decode_loop<portable<Half>, Mode>(in, out, elements);
  } else {
    vectorized<Half>::template decode<Mode>(in, out, elements);
  }
}

template <class Half>
std::size_t checked_encode(std::span<const float> in, std::span<Half> out) {
  require(in.size() == out.size(), "convert: the spans differ in size");
  return encode<Half>(best_instruction_set(), reinterpret_cast<const std::byte*>(in.data()),
                      reinterpret_cast<std::byte*>(out.data()), in.size());
}

template <decode_mode Mode, class Half>
void checked_decode(std::span<const Half> in, std::span<float> out) {
  require(in.size() == out.size(), "convert: the spans differ in size");
  decode<Half, Mode>(best_instruction_set(), reinterpret_cast<const std::byte*>(in.data()),
                     reinterpret_cast<std::byte*>(out.data()), in.size());
}

}  // namespace detail

/// out[i] = to_float16(in[i]). Returns how many of the results are not finite, be it by overflow or from the input.
inline std::size_t convert(std::span<const float> in, std::span<float16> out) { return detail::checked_encode(in, out); }

/// out[i] = to_bfloat16(in[i]). Returns how many of the results are not finite, be it by overflow or from the input.
inline std::size_t convert(std::span<const float> in, std::span<bfloat16> out) { return detail::checked_encode(in, out); }

/// out[i] = to_float32(in[i]).
inline void convert(std::span<const float16> in, std::span<float> out) {
  detail::checked_decode<detail::decode_mode::assign>(in, out);
}

/// out[i] = to_float32(in[i]).
inline void convert(std::span<const bfloat16> in, std::span<float> out) {
  detail::checked_decode<detail::decode_mode::assign>(in, out);
}

/// accumulator[i] += to_float32(in[i]): one float addition an element, under the processor's modes.
inline void convert_add(std::span<const float16> in, std::span<float> accumulator) {
  detail::checked_decode<detail::decode_mode::add>(in, accumulator);
}

/// accumulator[i] += to_float32(in[i]): one float addition an element, under the processor's modes.
inline void convert_add(std::span<const bfloat16> in, std::span<float> accumulator) {
  detail::checked_decode<detail::decode_mode::add>(in, accumulator);
}

}  // namespace gradweave
