/// @file
/// Loops over elements in memory, written so that compilers vectorize them at -O2: the portable path, and what the
/// others fall back on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include <gradweave/config.hpp>
#include <gradweave/element.hpp>

namespace gradweave::detail {

// Elements are read and written as bytes, so that memory which the caller sees as his own element type may be used; by
// the builtin, since with -D_FORTIFY_SOURCE the function is a checking wrapper, which keeps gcc 12 from vectorizing.

template <class T>
GRADWEAVE_ALWAYS_INLINE T load(const std::byte* from) noexcept {
  T value;
  __builtin_memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
GRADWEAVE_ALWAYS_INLINE void store(std::byte* to, T value) noexcept {
  __builtin_memcpy(to, &value, sizeof(T));
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

}  // namespace gradweave::detail
