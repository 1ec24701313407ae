#include <gradweave/element/bfloat16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include <doctest/doctest.h>

namespace gw = gradweave;

namespace {

/// The value of a non-negative finite float, without loading it: in a mode without subnormals that would change it.
/// 0x7f800000 counts as 2^128, which is where rounding sees the next number.
double value_of_single(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23);
  const int fraction = static_cast<int>(bits & 0x7f'ffffu);
  return exponent == 0 ? std::ldexp(fraction, -149) : std::ldexp(0x80'0000 + fraction, exponent - 150);
}

/// The nearest by distance to both neighbours, in double, where all of it is exact.
std::uint32_t nearest(std::uint32_t single) {
  const std::uint32_t sign = (single >> 31) << 15;
  const std::uint32_t magnitude = single & 0x7fff'ffffu;
  if (magnitude > 0x7f80'0000u) {
    return 0x7fc0u;
  }
  const std::uint32_t lower = magnitude >> 16;
  if (magnitude == 0x7f80'0000u) {
    return sign | lower;
  }
  const double value = value_of_single(magnitude);
  const double to_lower = value - value_of_single(lower << 16);
  const double to_upper = value_of_single((lower + 1) << 16) - value;
  const bool take_lower = to_lower == to_upper ? lower % 2 == 0 : to_lower < to_upper;
  return sign | (take_lower ? lower : lower + 1);
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t encoded(std::uint32_t single) { return gw::to_bfloat16(std::bit_cast<float>(single)).bits; }

}  // namespace

// At compile time too.
static_assert(gw::to_bfloat16(1.0f) == gw::bfloat16{0x3f80});
static_assert(gw::to_bfloat16(-2.0f) == gw::bfloat16{0xc000});
static_assert(gw::to_float32(gw::bfloat16{0x3f80}) == 1.0f);

TEST_CASE("bfloat16: every encoding decodes to its value and encodes back to itself, NaNs to the canonical one") {
  for (std::uint32_t bits = 0; bits < 0x1'0000; ++bits) {
    CAPTURE(bits);
    const float decoded = gw::to_float32(gw::bfloat16{static_cast<std::uint16_t>(bits)});
    const bool nan = (bits & 0x7fffu) > 0x7f80u;
    REQUIRE(bits_of(decoded) == (nan ? 0x7fc0'0000u : bits << 16));
    REQUIRE(gw::to_bfloat16(decoded).bits == (nan ? 0x7fc0u : bits));
  }
}

TEST_CASE("bfloat16: rounds to the nearest from every upper half and around every boundary, half-way cases to even") {
  for (std::uint32_t high = 0; high < 0x1'0000; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const std::uint32_t single = high << 16 | low;
      CAPTURE(single);
      REQUIRE(encoded(single) == nearest(single));
    }
  }
}

TEST_CASE("bfloat16: overflow, subnormals and special values") {
  CHECK(encoded(0x7f7f'0000u) == 0x7f7fu);
  CHECK(encoded(0x7f7f'7fffu) == 0x7f7fu);
  CHECK(encoded(0x7f7f'8000u) == 0x7f80u);
  CHECK(encoded(0xff7f'ffffu) == 0xff80u);
  CHECK(encoded(0x7f80'0000u) == 0x7f80u);
  CHECK(encoded(0xff80'0000u) == 0xff80u);
  CHECK(encoded(0x8000'0000u) == 0x8000u);
  CHECK(encoded(0x0000'8000u) == 0x0000u);
  CHECK(encoded(0x0000'8001u) == 0x0001u);
  CHECK(encoded(0x8001'8000u) == 0x8002u);
  CHECK(encoded(0x007f'ffffu) == 0x0080u);  // the largest subnormal rounds to the smallest normal number
  for (const std::uint32_t nan : {0x7f80'0001u, 0x7fc0'0000u, 0x7fff'ffffu, 0xff80'0001u, 0xffff'ffffu}) {
    CHECK(encoded(nan) == 0x7fc0u);
  }
}
