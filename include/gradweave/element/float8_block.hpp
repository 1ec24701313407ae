/// @file
/// Blocks of 8-bit numbers that share a scale, a power of two that brings the block's largest magnitude to the top of the
/// format. A power of two, since multiplying by it rounds nothing: host and device, and every compiler, then agree on bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include <gradweave/config.hpp>
#include <gradweave/element/float8.hpp>

namespace gradweave {

/// As many elements share a scale: a warp of 32 threads that read 16 bytes each.
inline constexpr std::size_t float8_block_elements = 128;

/// How many blocks hold that many elements; the last may be short.
GRADWEAVE_HOST_DEVICE constexpr std::size_t float8_blocks(std::size_t elements) noexcept {
  return elements / float8_block_elements + (elements % float8_block_elements != 0 ? 1 : 0);
}

/// A finite value's magnitude as an integer that compares as it does; 0 for infinities and NaNs, which no scale is chosen
/// by: they travel as what they are, and their block's other values keep their precision.
GRADWEAVE_HOST_DEVICE constexpr std::uint32_t finite_magnitude(float value) noexcept {
  const std::uint32_t magnitude = __builtin_bit_cast(std::uint32_t, value) & 0x7fff'ffffu;
  return magnitude < 0x7f80'0000u ? magnitude : 0u;
}

/// The exponent by which a block is encoded (to_float8) and decoded (from_float8): the largest for which the greatest
/// finite_magnitude, times 2^exponent, is at most the format's largest number. 0 for a block of zeros. It lies between
/// -120 and 164.
template <class Float8>
GRADWEAVE_HOST_DEVICE constexpr std::int32_t float8_exponent(std::uint32_t greatest_magnitude) noexcept {
  using format = detail::float8_format<Float8>;
  if (greatest_magnitude == 0) {
    return 0;
  }
  const detail::normalized greatest = detail::normalize(greatest_magnitude);
  const bool fits = (greatest.significand & 0x007f'ffffu) <= format::largest_fraction;
  return format::exponent_max - greatest.exponent - (fits ? 0 : 1);
}

}  // namespace gradweave
