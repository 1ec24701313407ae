/// @file
/// The 8-bit formats of the Open Compute Project (OCP 8-bit Floating Point Specification, revision 1.0) as storage types:
/// E4M3, which has no infinity and whose largest value is 448, and E5M2, whose largest finite value is 57344. Arithmetic
/// happens in float. float8_block.hpp has the scales that make them useful.
#pragma once

#include <cstdint>

#include <gradweave/config.hpp>

namespace gradweave {

/// 1 sign, 4 exponent and 3 fraction bits; smallest 2^-9. `==` compares encodings: -0 differs from +0.
struct float8_e4m3 {
  std::uint8_t bits = 0;

  friend constexpr bool operator==(float8_e4m3, float8_e4m3) = default;
};

/// 1 sign, 5 exponent and 2 fraction bits; smallest 2^-16. `==` compares encodings: -0 differs from +0.
struct float8_e5m2 {
  std::uint8_t bits = 0;

  friend constexpr bool operator==(float8_e5m2, float8_e5m2) = default;
};

namespace detail {

/// What sets the two formats apart.
template <class Float8>
struct float8_format;

template <>
struct float8_format<float8_e4m3> {
  static constexpr int fraction_bits = 3, exponent_min = -6;  // of normal numbers
  static constexpr int exponent_max = 8;
  static constexpr std::uint32_t largest = 0x7e, overflow = 0x7f, nan = 0x7f;
  static constexpr std::uint32_t largest_fraction = 0x60'0000;  // of 448 = 1.75 * 2^8, as float32 has it
};

template <>
struct float8_format<float8_e5m2> {
  static constexpr int fraction_bits = 2, exponent_min = -14;
  static constexpr int exponent_max = 15;
  static constexpr std::uint32_t largest = 0x7b, overflow = 0x7c, nan = 0x7e;
  static constexpr std::uint32_t largest_fraction = 0x60'0000;  // of 57344 = 1.75 * 2^15
};

/// A positive number as significand * 2^(exponent - 23), the significand from 2^23 on and below 2^24.
struct normalized {
  std::uint32_t significand;
  int exponent;
};

/// Of a finite positive float, by the bits of it.
GRADWEAVE_HOST_DEVICE constexpr normalized normalize(std::uint32_t bits) noexcept {
  if (bits >= 0x0080'0000u) {
    return {(bits & 0x007f'ffffu) | 0x0080'0000u, static_cast<int>(bits >> 23) - 127};
  }
  normalized subnormal{bits, -126};
  while (subnormal.significand < 0x0080'0000u) {
    subnormal.significand <<= 1;
    --subnormal.exponent;
  }
  return subnormal;
}

/// significand / 2^dropped, to the nearest integer, ties to even. `dropped` is 1 to 31.
GRADWEAVE_HOST_DEVICE constexpr std::uint32_t rounded_shift(std::uint32_t significand, int dropped) noexcept {
  const std::uint32_t odd = (significand >> dropped) & 1u;
  return (significand + ((1u << (dropped - 1)) - 1u) + odd) >> dropped;
}

}  // namespace detail

/// The number nearest to value * 2^exponent, ties to even, in one rounding. What would lie beyond the largest finite
/// number becomes infinity or, in E4M3, NaN: nothing saturates, so that an overflow can be seen. So do infinities. Every
/// NaN becomes the one NaN 0x7f (E4M3) or 0x7e (E5M2), its sign dropped.
template <class Float8>
GRADWEAVE_HOST_DEVICE constexpr Float8 to_float8(float value, int exponent = 0) noexcept {
  // All on integers: flush-to-zero modes, rounding modes and fast-math flags of host and device cannot reach it.
  using format = detail::float8_format<Float8>;
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 24) & 0x80u;
  const std::uint32_t magnitude = bits & 0x7fff'ffffu;
  // What E4M3 has for infinity is its NaN, which has no sign here.
  const std::uint32_t overflow = format::overflow == format::nan ? format::nan : sign | format::overflow;
  if (magnitude > 0x7f80'0000u) {
    return {static_cast<std::uint8_t>(format::nan)};
  }
  if (magnitude == 0x7f80'0000u) {
    return {static_cast<std::uint8_t>(overflow)};
  }
  if (magnitude == 0) {
    return {static_cast<std::uint8_t>(sign)};
  }
  detail::normalized number = detail::normalize(magnitude);
  number.exponent += exponent;
  if (number.exponent > format::exponent_max) {
    return {static_cast<std::uint8_t>(overflow)};
  }
  const int binades = number.exponent - format::exponent_min;  // below 0 for what becomes subnormal
  const int dropped = 23 - format::fraction_bits - (binades < 0 ? binades : 0);
  if (dropped > 24) {  // less than half of the smallest number
    return {static_cast<std::uint8_t>(sign)};
  }
  // The leading 1 adds one to the exponent, and so does a carry from rounding: the next binade, or the first normal.
  const std::uint32_t code = detail::rounded_shift(number.significand, dropped) +
                             (static_cast<std::uint32_t>(binades < 0 ? 0 : binades) << format::fraction_bits);
  return {static_cast<std::uint8_t>(code > format::largest ? overflow : sign | code)};
}

/// value * 2^-exponent, to the nearest float. It is exact but where that is too large, which is infinity, or subnormal.
/// Every NaN becomes 0x7fc00000.
template <class Float8>
GRADWEAVE_HOST_DEVICE constexpr float from_float8(Float8 value, int exponent = 0) noexcept {
  using format = detail::float8_format<Float8>;
  const std::uint32_t sign = (value.bits & 0x80u) << 24;
  const std::uint32_t code = value.bits & 0x7fu;
  if (code > format::largest) {
    return __builtin_bit_cast(
        float, code == format::overflow && format::overflow != format::nan ? sign | 0x7f80'0000u : 0x7fc0'0000u);
  }
  if (code == 0) {
    return __builtin_bit_cast(float, sign);
  }
  const std::uint32_t field = code >> format::fraction_bits;
  const std::uint32_t fraction = code & ((1u << format::fraction_bits) - 1u);
  int binade = format::exponent_min + static_cast<int>(field == 0 ? 0 : field - 1);
  std::uint32_t significand = (field == 0 ? fraction : fraction | 1u << format::fraction_bits)
                              << (23 - format::fraction_bits);
  while (significand < 0x0080'0000u) {
    significand <<= 1;
    --binade;
  }
  // Exponents come off the wire: any integer is allowed, and none may overflow.
  const std::int64_t scaled = std::int64_t{binade} - exponent;
  if (scaled > 127) {
    return __builtin_bit_cast(float, sign | 0x7f80'0000u);
  }
  if (scaled >= -126) {
    return __builtin_bit_cast(float, sign | ((static_cast<std::uint32_t>(scaled + 126) << 23) + significand));
  }
  const std::int64_t dropped = -126 - scaled;
  return __builtin_bit_cast(float,
                            dropped > 24 ? sign : sign | detail::rounded_shift(significand, static_cast<int>(dropped)));
}

GRADWEAVE_HOST_DEVICE constexpr float to_float32(float8_e4m3 value) noexcept { return from_float8(value); }
GRADWEAVE_HOST_DEVICE constexpr float to_float32(float8_e5m2 value) noexcept { return from_float8(value); }

}  // namespace gradweave
