/// @file
/// IEEE 754 binary16 as a storage type: 1 sign, 5 exponent and 10 fraction bits; largest finite value 65504, smallest
/// 2^-24. Arithmetic happens in float. convert.hpp has the conversions over spans.
#pragma once

#include <cstdint>

#include <gradweave/config.hpp>

namespace gradweave {

/// A binary16 number, by its encoding. `==` compares encodings: -0 differs from +0, and a NaN equals itself.
struct float16 {
  std::uint16_t bits = 0;

  friend constexpr bool operator==(float16, float16) = default;
};

/// The nearest float16, ties to even. From 65520 on, halfway to what would come after 65504, that is infinity.
/// Subnormals are exact. Every NaN becomes the one quiet NaN 0x7e00, its sign dropped, so that ranks agree on its bits.
GRADWEAVE_HOST_DEVICE constexpr float16 to_float16(float value) noexcept {
  // All on integers: flush-to-zero modes, rounding modes and -ffast-math cannot reach it.
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fff'ffffu;
  if (magnitude > 0x7f80'0000u) {
    return {0x7e00u};
  }
  if (magnitude >= 0x477f'f000u) {  // 65520
    return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  }
  // Adding just under half a unit, and one more where the kept part is odd, rounds half-way cases to even. A carry runs
  // into the exponent, which is right: the next binade, or the first normal number, follows.
  if (magnitude >= 0x3880'0000u) {  // 2^-14, the smallest normal float16: re-bias the exponent from 127 to 15
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    return {static_cast<std::uint16_t>(sign | ((magnitude - (112u << 23) + 0xfffu + odd) >> 13))};
  }
  if (magnitude <= 0x3300'0000u) {  // 2^-25, half of the smallest subnormal, ties to the even zero
    return {static_cast<std::uint16_t>(sign)};
  }
  const std::uint32_t significand = (magnitude & 0x007f'ffffu) | 0x0080'0000u;
  const std::uint32_t shift = 126u - (magnitude >> 23);  // 14 to 24: from units of 2^(exponent - 150) to 2^-24
  const std::uint32_t odd = (significand >> shift) & 1u;
  return {static_cast<std::uint16_t>(sign | ((significand + (1u << (shift - 1u)) - 1u + odd) >> shift))};
}

/// Exact. Every NaN becomes 0x7fc00000.
GRADWEAVE_HOST_DEVICE constexpr float to_float32(float16 value) noexcept {
  // Without branches, so that loops over it become vector code.
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t rebiased = (magnitude << 13) + (112u << 23);
  // A product of integer and power of two is exact and never subnormal in float, so no mode of the processor changes
  // it, and a compiler that fuses it into an addition that follows changes nothing.
  const auto subnormal =
      __builtin_bit_cast(std::uint32_t, static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-24f);
  const std::uint32_t finite = magnitude < 0x0400u ? subnormal : rebiased;
  const std::uint32_t infinite = magnitude == 0x7c00u ? 0x7f80'0000u : finite;
  return __builtin_bit_cast(float, magnitude > 0x7c00u ? 0x7fc0'0000u : sign | infinite);
}

}  // namespace gradweave
