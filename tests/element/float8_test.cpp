#include <gradweave/element/float8.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;

namespace {

using gw::float8_e4m3;
using gw::float8_e5m2;

template <class Float8>
constexpr bool is_e4m3 = std::is_same_v<Float8, float8_e4m3>;

/// The largest finite encoding; what follows it counts as the next number, which is where rounding sees it.
template <class Float8>
constexpr std::uint32_t largest = is_e4m3<Float8> ? 0x7e : 0x7b;
template <class Float8>
constexpr std::uint32_t overflown = is_e4m3<Float8> ? 0x7f : 0x7c;
template <class Float8>
constexpr std::uint32_t nan_code = is_e4m3<Float8> ? 0x7f : 0x7e;

/// From the definition of the formats.
template <class Float8>
double value_of(std::uint32_t code) {
  constexpr int fraction_bits = is_e4m3<Float8> ? 3 : 2, bias = is_e4m3<Float8> ? 7 : 15;
  const int field = static_cast<int>(code >> fraction_bits);
  const int fraction = static_cast<int>(code & ((1u << fraction_bits) - 1));
  return field == 0 ? std::ldexp(fraction, 1 - bias - fraction_bits)
                    : std::ldexp((1 << fraction_bits) + fraction, field - bias - fraction_bits);
}

/// Rounds by searching all encodings for the nearest. It shares no step with the code under test.
template <class Float8>
std::uint32_t nearest(double value, bool negative) {
  const std::uint32_t sign = negative ? 0x80u : 0u;
  std::uint32_t best = 0;
  for (std::uint32_t code = 1; code <= largest<Float8> + 1; ++code) {
    const double to_best = std::abs(value - value_of<Float8>(best)), to_this = std::abs(value - value_of<Float8>(code));
    if (to_this < to_best || (to_this == to_best && code % 2 == 0)) {
      best = code;
    }
  }
  if (best <= largest<Float8>) {
    return sign | best;
  }
  return is_e4m3<Float8> ? 0x7f : sign | 0x7c;
}

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }

template <class Float8>
std::uint32_t encoded(std::uint32_t single, int exponent = 0) {
  return gw::to_float8<Float8>(std::bit_cast<float>(single), exponent).bits;
}

constexpr float infinity = std::numeric_limits<float>::infinity();

}  // namespace

// At compile time too.
static_assert(gw::to_float8<float8_e4m3>(448.0f) == float8_e4m3{0x7e});
static_assert(gw::to_float8<float8_e5m2>(-1.0f) == float8_e5m2{0xbc});
static_assert(gw::to_float32(float8_e4m3{0x01}) == 0x1p-9f);
static_assert(gw::to_float32(float8_e5m2{0x7b}) == 57344.0f);

TEST_CASE_TEMPLATE("float8: every encoding decodes to its value and encodes back to itself, NaNs to the canonical one",
                   Float8, float8_e4m3, float8_e5m2) {
  for (std::uint32_t bits = 0; bits < 0x100; ++bits) {
    CAPTURE(bits);
    const float decoded = gw::to_float32(Float8{static_cast<std::uint8_t>(bits)});
    const std::uint32_t magnitude = bits & 0x7fu;
    const std::uint32_t sign = (bits & 0x80u) << 24;
    if (magnitude > largest<Float8> && (is_e4m3<Float8> || magnitude != 0x7c)) {
      REQUIRE(bits_of(decoded) == 0x7fc0'0000u);
      REQUIRE(encoded<Float8>(bits_of(decoded)) == nan_code<Float8>);
      continue;
    }
    const float expected = magnitude > largest<Float8> ? infinity : static_cast<float>(value_of<Float8>(magnitude));
    REQUIRE(bits_of(decoded) == (sign | bits_of(expected)));
    REQUIRE(encoded<Float8>(bits_of(decoded)) == bits);
  }
}

TEST_CASE_TEMPLATE("float8: rounds to the nearest at every boundary between two encodings, half-way cases to even",
                   Float8, float8_e4m3, float8_e5m2) {
  for (std::uint32_t lower = 0; lower <= largest<Float8>; ++lower) {  // the last boundary is the one to overflow
    const double half_way = (value_of<Float8>(lower) + value_of<Float8>(lower + 1)) / 2;
    const std::uint32_t middle = bits_of(static_cast<float>(half_way));
    CAPTURE(middle);
    for (const std::uint32_t magnitude : {middle - 1, middle, middle + 1}) {
      const double value = std::bit_cast<float>(magnitude);
      REQUIRE(encoded<Float8>(magnitude) == nearest<Float8>(value, false));
      REQUIRE(encoded<Float8>(magnitude | 0x8000'0000u) == nearest<Float8>(value, true));
    }
    REQUIRE(encoded<Float8>(middle - 1) == lower);
  }
}

TEST_CASE_TEMPLATE("float8: agrees with a search for the nearest across all exponents", Float8, float8_e4m3,
                   float8_e5m2) {
  for (std::uint32_t high = 0; high < 0x7f80; high += 3) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0xffffu}) {
      const std::uint32_t single = high << 16 | low;
      const double value = (single >> 23) == 0
                               ? std::ldexp(single, -149)
                               : std::ldexp((single & 0x7f'ffffu) | 0x80'0000u, static_cast<int>(single >> 23) - 150);
      const std::uint32_t expected = value > 1e6 ? overflown<Float8> : nearest<Float8>(value, false);
      CAPTURE(single);
      REQUIRE(encoded<Float8>(single) == expected);
    }
  }
}

TEST_CASE_TEMPLATE("float8: no infinity and no overflow becomes a finite number, and NaN stays NaN", Float8,
                   float8_e4m3, float8_e5m2) {
  const std::uint32_t negative = is_e4m3<Float8> ? 0x7f : 0xfc;
  CHECK(encoded<Float8>(bits_of(infinity)) == overflown<Float8>);
  CHECK(encoded<Float8>(bits_of(-infinity)) == negative);
  CHECK(encoded<Float8>(0x7f7f'ffffu) == overflown<Float8>);
  CHECK(encoded<Float8>(0xff7f'ffffu) == negative);
  CHECK(encoded<Float8>(0x8000'0000u) == 0x80u);
  CHECK(encoded<Float8>(0x8000'0001u) == 0x80u);
  for (const std::uint32_t nan : {0x7f80'0001u, 0x7fc0'0000u, 0x7fff'ffffu, 0xff80'0001u, 0xffff'ffffu}) {
    CHECK(encoded<Float8>(nan) == nan_code<Float8>);
    CHECK(encoded<Float8>(nan, -100) == nan_code<Float8>);
  }
}

TEST_CASE_TEMPLATE("float8: an exponent scales before the one rounding, and back", Float8, float8_e4m3, float8_e5m2) {
  for (std::uint32_t bits = 0; bits <= largest<Float8>; ++bits) {
    const Float8 code{static_cast<std::uint8_t>(bits)};
    for (int exponent = -140; exponent <= 190; exponent += 3) {
      CAPTURE(bits);
      CAPTURE(exponent);
      const double exact = std::ldexp(value_of<Float8>(bits), -exponent);
      const float decoded = gw::from_float8(code, exponent);
      REQUIRE(bits_of(decoded) == bits_of(static_cast<float>(exact)));
      if (static_cast<double>(decoded) == exact) {
        REQUIRE(gw::to_float8<Float8>(decoded, exponent) == code);
      }
    }
  }
  const Float8 one{static_cast<std::uint8_t>(is_e4m3<Float8> ? 0x38 : 0x3c)};
  CHECK(gw::from_float8(one, std::numeric_limits<int>::max()) == 0.0f);
  CHECK(gw::from_float8(one, std::numeric_limits<int>::min()) == infinity);
}
