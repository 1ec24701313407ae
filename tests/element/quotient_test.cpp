#include <gradweave/element/quotient.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
using gw::detail::instruction_set;

namespace {

constexpr std::uint32_t seed = 20240608;

constexpr std::uint32_t divisors[] = {2, 3, 4, 5, 6, 7, 8, 10, 12, 24, 33, 255, 1000, 1023, 65537, 16777215, 16777216};

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;

/// The quotient of a non-negative finite encoding, by long division on integers and rounding to nearest even: no
/// floating instruction, no flag and no processor mode reaches it.
template <class T>
std::uint64_t reference_quotient(std::uint64_t encoding, std::uint64_t divisor) {
  constexpr int fraction_bits = sizeof(T) == 4 ? 23 : 52;
  const std::uint64_t fraction = encoding & ((std::uint64_t{1} << fraction_bits) - 1);
  const int field = static_cast<int>(encoding >> fraction_bits);
  const std::uint64_t significand = field == 0 ? fraction : fraction | std::uint64_t{1} << fraction_bits;
  if (significand == 0) {
    return 0;
  }
  // The value is significand * 2^exponent, in units of the smallest subnormal.
  int exponent = field == 0 ? 0 : field - 1;
  std::uint64_t quotient = significand / divisor;
  std::uint64_t remainder = significand % divisor;
  for (; quotient < std::uint64_t{1} << 60; --exponent) {
    remainder *= 2;
    quotient = quotient * 2 + (remainder >= divisor ? 1 : 0);
    remainder -= remainder >= divisor ? divisor : 0;
  }
  // Drop what is below the format's last place, which cannot lie below the smallest subnormal's.
  int drop = 60 - fraction_bits;
  drop = drop < -exponent ? -exponent : drop;
  if (drop > 62) {
    return 0;
  }
  const std::uint64_t half = std::uint64_t{1} << (drop - 1);
  const std::uint64_t dropped = quotient & (2 * half - 1);
  std::uint64_t rounded = quotient >> drop;
  const bool up = dropped > half || (dropped == half && (remainder != 0 || rounded % 2 == 1));
  rounded += up ? 1 : 0;
  // Adding lets a carry run from the fraction into the exponent.
  return rounded < std::uint64_t{1} << fraction_bits
             ? rounded
             : (static_cast<std::uint64_t>(exponent + drop) << fraction_bits) + rounded;
}

template <class T>
void check_quotients(const std::vector<bits_of<T>>& values, std::uint32_t divisor) {
  constexpr auto sign = static_cast<bits_of<T>>(bits_of<T>{1} << (8 * sizeof(T) - 1));
  for (const auto set : {instruction_set::portable, instruction_set::avx2, instruction_set::neon}) {
    if (!gw::detail::supported(set)) {
      continue;
    }
    std::vector<bits_of<T>> quotients = values;
    gw::detail::divide_floats(set, reinterpret_cast<std::byte*>(quotients.data()), quotients.size(),
                              static_cast<T>(divisor));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto magnitude = static_cast<bits_of<T>>(values[i] & ~sign);
      const auto expected = static_cast<bits_of<T>>((values[i] & sign) |
                                                    static_cast<bits_of<T>>(reference_quotient<T>(magnitude, divisor)));
      CAPTURE(values[i]);
      CAPTURE(divisor);
      REQUIRE(quotients[i] == expected);
    }
  }
}

}  // namespace

TEST_CASE("quotient: the reference divides") {
  const auto expected = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  CHECK(reference_quotient<float>(expected(6.0f), 3) == expected(2.0f));
  CHECK(reference_quotient<float>(expected(1.0f), 3) == expected(0x1.555556p-2f));
  CHECK(reference_quotient<float>(expected(0x1.fffffep0f), 2) == expected(0x1.fffffep-1f));
  CHECK(reference_quotient<float>(3, 2) == 2);
  CHECK(reference_quotient<float>(1, 2) == 0);
  CHECK(reference_quotient<float>(5, 2) == 2);
  CHECK(reference_quotient<double>(std::bit_cast<std::uint64_t>(1.0), 3) == 0x3fd5'5555'5555'5555u);
}

TEST_CASE_TEMPLATE("quotient: correctly rounded whatever flags the program is built with", T, float, double) {
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  constexpr int fraction_bits = sizeof(T) == 4 ? 23 : 52;
  for (const std::uint32_t divisor : divisors) {
    std::vector<bits_of<T>> values;
    for (int i = 0; i < 20011; ++i) {
      // Exponents that keep the quotient normal: -ffast-math may have switched subnormals off.
      const std::uint64_t fraction = random() >> (64 - fraction_bits);
      const std::uint64_t exponent = 32 + random() % 200;
      const std::uint64_t sign = random() % 2;
      values.push_back(static_cast<bits_of<T>>(sign << (8 * sizeof(T) - 1) | exponent << fraction_bits | fraction));
    }
    check_quotients<T>(values, divisor);
  }
}

#if !GRADWEAVE_FAST_MATH
TEST_CASE_TEMPLATE("quotient: subnormals round once", T, float, double) {
  std::mt19937_64 random(seed);
  CAPTURE(seed);
  constexpr int fraction_bits = sizeof(T) == 4 ? 23 : 52;
  for (const std::uint32_t divisor : divisors) {
    std::vector<bits_of<T>> values;
    for (std::uint32_t small = 0; small < 1000; ++small) {
      values.push_back(small);
    }
    for (int i = 0; i < 10007; ++i) {
      const std::uint64_t fraction = random() >> (64 - fraction_bits);
      values.push_back(static_cast<bits_of<T>>((random() % 30) << fraction_bits | fraction));
    }
    check_quotients<T>(values, divisor);
  }
}
#endif

TEST_CASE_TEMPLATE("quotient: every length, and not a byte beyond", T, float, double) {
  for (std::size_t elements = 0; elements < 40; ++elements) {
    for (const auto set : {instruction_set::portable, instruction_set::avx2, instruction_set::neon}) {
      if (gw::detail::supported(set)) {
        CAPTURE(elements);
        std::vector<T> values(elements + 2, T{9});
        gw::detail::divide_floats(set, reinterpret_cast<std::byte*>(values.data() + 1), elements, T{3});
        REQUIRE(values.front() == T{9});
        REQUIRE(values.back() == T{9});
        for (std::size_t i = 1; i <= elements; ++i) {
          REQUIRE(values[i] == T{3});
        }
      }
    }
  }
}
