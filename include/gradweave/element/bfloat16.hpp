/// @file
/// bfloat16 as a storage type: the upper half of a binary32, so 1 sign, 8 exponent and 7 fraction bits. Arithmetic
/// happens in float. convert.hpp has the conversions over spans.
#pragma once

#include <cstdint>

#include <gradweave/config.hpp>

namespace gradweave {

/// A bfloat16 number, by its encoding. `==` compares encodings: -0 differs from +0, and a NaN equals itself.
struct bfloat16 {
  std::uint16_t bits = 0;

  friend constexpr bool operator==(bfloat16, bfloat16) = default;
};

/// The nearest bfloat16, ties to even; beyond the largest finite value that is infinity. Subnormals are exact. Every
/// NaN becomes the one quiet NaN 0x7fc0, its sign dropped, so that ranks agree on its bits.
GRADWEAVE_HOST_DEVICE constexpr bfloat16 to_bfloat16(float value) noexcept {
  // All on integers: flush-to-zero modes, rounding modes and -ffast-math cannot reach it. Without branches, with a
  // signed comparison, which vector units have and the unsigned one they lack, and narrowed once, so that loops over it
  // become good vector code. A carry from rounding into the exponent is right: it makes the next binade, or infinity.
  const auto given = __builtin_bit_cast(std::uint32_t, value);
  const bool nan = static_cast<std::int32_t>(given & 0x7fff'ffffu) > 0x7f80'0000;
  const std::uint32_t bits = nan ? 0x7fc0'0000u : given;
  const std::uint32_t odd = (bits >> 16) & 1u;
  return {static_cast<std::uint16_t>((bits + 0x7fffu + odd) >> 16)};
}

/// Exact. Every NaN becomes 0x7fc00000.
GRADWEAVE_HOST_DEVICE constexpr float to_float32(bfloat16 value) noexcept {
  const std::uint32_t bits = std::uint32_t{value.bits} << 16;
  const bool nan = static_cast<std::int32_t>(bits & 0x7fff'ffffu) > 0x7f80'0000;
  return __builtin_bit_cast(float, nan ? 0x7fc0'0000u : bits);
}

}  // namespace gradweave
