#include <gradweave/element/float8_block.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include <doctest/doctest.h>

namespace gw = gradweave;

static_assert(gw::float8_blocks(0) == 0 && gw::float8_blocks(1) == 1 && gw::float8_blocks(128) == 1);
static_assert(gw::float8_blocks(std::size_t{1} << 40 | 1) == (std::size_t{1} << 33) + 1);

TEST_CASE_TEMPLATE("float8_exponent: brings the greatest magnitude to the top of the format and not beyond", Float8,
                   gw::float8_e4m3, gw::float8_e5m2) {
  const double largest = std::is_same_v<Float8, gw::float8_e4m3> ? 448 : 57344;
  for (std::uint32_t high = 0; high < 0x7f80; high += 5) {
    for (const std::uint32_t low : {0x0001u, 0x0000u, 0xffffu}) {
      const std::uint32_t magnitude = high << 16 | low;
      if (magnitude == 0) {
        continue;
      }
      const double value = (magnitude >> 23) == 0 ? std::ldexp(magnitude, -149)
                                                  : std::ldexp((magnitude & 0x7f'ffffu) | 0x80'0000u,
                                                               static_cast<int>(magnitude >> 23) - 150);
      const std::int32_t exponent = gw::float8_exponent<Float8>(magnitude);
      CAPTURE(magnitude);
      REQUIRE(std::ldexp(value, exponent) <= largest);
      REQUIRE(std::ldexp(value, exponent + 1) > largest);
      REQUIRE(exponent >= -120);
      REQUIRE(exponent <= 164);
    }
  }
  CHECK(gw::float8_exponent<Float8>(0) == 0);
}

TEST_CASE("finite_magnitude: infinities and NaNs choose no scale") {
  CHECK(gw::finite_magnitude(-2.0f) == 0x4000'0000u);
  CHECK(gw::finite_magnitude(-std::numeric_limits<float>::infinity()) == 0);
  CHECK(gw::finite_magnitude(std::bit_cast<float>(0xffff'ffffu)) == 0);
  CHECK(gw::finite_magnitude(std::numeric_limits<float>::max()) == 0x7f7f'ffffu);
}
