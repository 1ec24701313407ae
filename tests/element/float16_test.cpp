#include <gradweave/element/float16.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;

namespace {

/// The value of the non-negative finite encoding `bits`, from the definition in IEEE 754. Its successor 0x7c00 counts
/// as 65536, which is where rounding sees the next number.
double value_of_half(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 10);
  const int fraction = static_cast<int>(bits & 0x3ffu);
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

/// The value of a non-negative finite float, without loading it: in a mode without subnormals that would change it.
double value_of_single(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23);
  const int fraction = static_cast<int>(bits & 0x7f'ffffu);
  return exponent == 0 ? std::ldexp(fraction, -149) : std::ldexp(0x80'0000 + fraction, exponent - 150);
}

/// Rounds by searching all encodings for the nearest. It shares no step with the code under test.
class nearest_half {
 public:
  nearest_half() {
    for (std::uint32_t bits = 0; bits <= 0x7c00u; ++bits) {
      values_.push_back(value_of_half(bits));
    }
  }

  std::uint32_t operator()(std::uint32_t single) const {
    const std::uint32_t sign = (single >> 31) << 15;
    const std::uint32_t magnitude = single & 0x7fff'ffffu;
    if (magnitude > 0x7f80'0000u) {
      return 0x7e00u;
    }
    const double value = magnitude == 0x7f80'0000u ? 1e30 : value_of_single(magnitude);
    const auto above = std::upper_bound(values_.begin(), values_.end(), value);
    if (above == values_.end()) {
      return sign | 0x7c00u;
    }
    const auto upper = static_cast<std::uint32_t>(above - values_.begin());
    const std::uint32_t lower = upper - 1;
    const double to_lower = value - values_[lower];
    const double to_upper = values_[upper] - value;
    const bool take_lower = to_lower == to_upper ? lower % 2 == 0 : to_lower < to_upper;
    return sign | (take_lower ? lower : upper);
  }

 private:
  std::vector<double> values_;
};

std::uint32_t bits_of(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t encoded(std::uint32_t single) { return gw::to_float16(std::bit_cast<float>(single)).bits; }

}  // namespace

// At compile time too.
static_assert(gw::to_float16(1.0f) == gw::float16{0x3c00});
static_assert(gw::to_float16(-65504.0f) == gw::float16{0xfbff});
static_assert(gw::to_float16(65520.0f) == gw::float16{0x7c00});
static_assert(gw::to_float16(0x1p-24f) == gw::float16{1});
static_assert(gw::to_float32(gw::float16{1}) == 0x1p-24f);
static_assert(gw::to_float32(gw::float16{0xc000}) == -2.0f);

TEST_CASE("float16: every encoding decodes to its value and encodes back to itself, NaNs to the canonical one") {
  for (std::uint32_t bits = 0; bits < 0x1'0000; ++bits) {
    CAPTURE(bits);
    const float decoded = gw::to_float32(gw::float16{static_cast<std::uint16_t>(bits)});
    const std::uint32_t magnitude = bits & 0x7fffu;
    if (magnitude > 0x7c00u) {
      REQUIRE(bits_of(decoded) == 0x7fc0'0000u);
      REQUIRE(gw::to_float16(decoded).bits == 0x7e00u);
      continue;
    }
    const double expected = magnitude == 0x7c00u ? 0.0 : value_of_half(magnitude);
    const std::uint32_t sign = (bits & 0x8000u) << 16;
    if (magnitude == 0x7c00u) {
      REQUIRE(bits_of(decoded) == (sign | 0x7f80'0000u));
    } else {
      REQUIRE(bits_of(decoded) == (sign | bits_of(static_cast<float>(expected))));
    }
    REQUIRE(gw::to_float16(decoded).bits == bits);
  }
}

TEST_CASE("float16: rounds to the nearest at every boundary between two encodings, half-way cases to even") {
  const nearest_half nearest;
  for (std::uint32_t lower = 0; lower < 0x7c00u; ++lower) {  // the last boundary, 65520, is the one to infinity
    const double half_way = (value_of_half(lower) + value_of_half(lower + 1)) / 2;
    const std::uint32_t middle = bits_of(static_cast<float>(half_way));  // exact: one bit more than a float16 has
    CAPTURE(middle);
    REQUIRE(encoded(middle) == lower + lower % 2);
    REQUIRE(encoded(middle - 1) == lower);
    REQUIRE(encoded(middle + 1) == lower + 1);
    for (const std::uint32_t magnitude : {middle - 1, middle, middle + 1}) {
      REQUIRE(encoded(magnitude) == nearest(magnitude));
      REQUIRE(encoded(magnitude | 0x8000'0000u) == nearest(magnitude | 0x8000'0000u));
    }
  }
}

TEST_CASE("float16: agrees with a search for the nearest across all exponents") {
  const nearest_half nearest;
  for (std::uint32_t high = 0; high < 0x1'0000; high += 7) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0xffffu}) {
      const std::uint32_t single = high << 16 | low;
      CAPTURE(single);
      REQUIRE(encoded(single) == nearest(single));
    }
  }
}

TEST_CASE("float16: overflow, underflow and special values") {
  CHECK(encoded(bits_of(65504.0f)) == 0x7bffu);
  CHECK(encoded(bits_of(65519.996f)) == 0x7bffu);
  CHECK(encoded(bits_of(65520.0f)) == 0x7c00u);
  CHECK(encoded(bits_of(-65520.0f)) == 0xfc00u);
  CHECK(encoded(0x7f7f'ffffu) == 0x7c00u);
  CHECK(encoded(0x7f80'0000u) == 0x7c00u);
  CHECK(encoded(0xff80'0000u) == 0xfc00u);
  CHECK(encoded(0x3300'0000u) == 0x0000u);  // 2^-25
  CHECK(encoded(0x3300'0001u) == 0x0001u);
  CHECK(encoded(0xb300'0000u) == 0x8000u);
  CHECK(encoded(0x8000'0000u) == 0x8000u);
  for (const std::uint32_t subnormal : {0x0000'0001u, 0x0040'0000u, 0x007f'ffffu}) {
    CHECK(encoded(subnormal) == 0x0000u);
    CHECK(encoded(subnormal | 0x8000'0000u) == 0x8000u);
  }
  for (const std::uint32_t nan : {0x7f80'0001u, 0x7fc0'0000u, 0x7fff'ffffu, 0xff80'0001u, 0xffff'ffffu}) {
    CHECK(encoded(nan) == 0x7e00u);
  }
}
