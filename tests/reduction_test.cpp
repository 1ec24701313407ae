#include <gradweave/reduction.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
using gw::detail::instruction_set;
using operation = gw::reduction_operation;

// What travels on the wire never changes.
static_assert(static_cast<int>(operation::sum) == 1 && static_cast<int>(operation::min) == 2);
static_assert(static_cast<int>(operation::max) == 3);
static_assert(gw::reduction{} == gw::reduction{operation::sum, 1});
static_assert(gw::reduction{operation::sum, 2} != gw::reduction{operation::sum, 3});

namespace {

constexpr std::uint32_t seed = 20240609;

template <class T>
using integer_of =
    std::conditional_t<sizeof(T) == 1, std::uint8_t,
                       std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                          std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;

/// Elements travel as their bits: -ffast-math must find no NaN to have ideas about.
template <class T>
using bits = std::vector<integer_of<T>>;

template <class T>
std::byte* bytes(bits<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}
template <class T>
const std::byte* bytes(const bits<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

template <class Visitor>
void for_each_set(Visitor visitor) {
  for (const auto set : {instruction_set::portable, instruction_set::avx2, instruction_set::neon}) {
    if (gw::detail::supported(set)) {
      visitor(set);
    }
  }
}

template <class T>
constexpr bool is_float = gw::is_floating(gw::element_kind_of<T>);

/// Zeros, ones, extremes, infinities, NaNs, their neighbours, and random encodings.
template <class T>
bits<T> interesting() {
  bits<T> values = {0, 1, 2, 3};
  constexpr auto top = static_cast<integer_of<T>>(integer_of<T>{1} << (8 * sizeof(T) - 1));
  if constexpr (is_float<T>) {
    using encoding = gw::detail::float_encoding<gw::element_kind_of<T>>;
    for (const auto around : {encoding::infinity, encoding::canonical_nan}) {
      for (int step = -1; step <= 1; ++step) {
        values.push_back(static_cast<integer_of<T>>(around + step));
      }
    }
  }
  values.push_back(static_cast<integer_of<T>>(top - 1));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 40; ++i) {
    values.push_back(static_cast<integer_of<T>>(random()));
  }
  const std::size_t half = values.size();
  for (std::size_t i = 0; i < half; ++i) {
    values.push_back(static_cast<integer_of<T>>(values[i] ^ top));
  }
  return values;
}

/// Every pair of interesting elements, as two arrays.
template <class T>
struct pairs {
  bits<T> left, right;
  pairs() {
    const bits<T> values = interesting<T>();
    for (const auto a : values) {
      for (const auto b : values) {
        left.push_back(a);
        right.push_back(b);
      }
    }
  }
};

template <class T>
bool is_nan(integer_of<T> value) {
  using encoding = gw::detail::float_encoding<gw::element_kind_of<T>>;
  constexpr auto sign_off = static_cast<integer_of<T>>(std::numeric_limits<integer_of<T>>::max() / 2);
  return (value & sign_off) > encoding::infinity;
}

/// Whether a comes before b where neither is NaN: by sign first, then by magnitude.
template <class T>
bool before(integer_of<T> a, integer_of<T> b) {
  if constexpr (is_float<T>) {
    constexpr int top = 8 * sizeof(T) - 1;
    const bool a_negative = a >> top != 0;
    const bool b_negative = b >> top != 0;
    return a_negative != b_negative ? a_negative : a_negative ? a > b : a < b;
  } else {
    return static_cast<T>(a) < static_cast<T>(b);
  }
}

template <class T>
integer_of<T> extreme(operation op, integer_of<T> a, integer_of<T> b) {
  if constexpr (is_float<T>) {
    if (is_nan<T>(a) || is_nan<T>(b)) {
      return static_cast<integer_of<T>>(gw::detail::float_encoding<gw::element_kind_of<T>>::canonical_nan);
    }
  }
  return before<T>(a, b) == (op == operation::min) ? a : b;
}

template <class T>
T add(integer_of<T> a, integer_of<T> b) {
  if constexpr (std::is_same_v<T, gw::float16>) {
    return gw::to_float16(gw::to_float32(gw::float16{a}) + gw::to_float32(gw::float16{b}));
  } else if constexpr (std::is_same_v<T, gw::bfloat16>) {
    return gw::to_bfloat16(gw::to_float32(gw::bfloat16{a}) + gw::to_float32(gw::bfloat16{b}));
  } else if constexpr (is_float<T>) {
    return std::bit_cast<T>(a) + std::bit_cast<T>(b);
  } else {
    return static_cast<T>(static_cast<integer_of<T>>(a + b));
  }
}

}  // namespace

TYPE_TO_STRING(gw::float16);
TYPE_TO_STRING(gw::bfloat16);

#define EVERY_ELEMENT                                                                                            \
  float, double, gw::float16, gw::bfloat16, std::int8_t, std::int16_t, std::int32_t, std::int64_t, std::uint8_t, \
      std::uint16_t, std::uint32_t, std::uint64_t

TEST_CASE_TEMPLATE("reduction: min and max are exact, take NaN to canonical NaN and -0 for less than +0", T,
                   EVERY_ELEMENT) {
  const pairs<T> input;
  for_each_set([&](instruction_set set) {
    for (const auto op : {operation::min, operation::max}) {
      bits<T> result = input.left;
      gw::detail::reduce_elements<T>(set, op, bytes<T>(result), bytes<T>(input.right), result.size());
      for (std::size_t i = 0; i < result.size(); ++i) {
        CAPTURE(input.left[i]);
        CAPTURE(input.right[i]);
        REQUIRE(result[i] == extreme<T>(op, input.left[i], input.right[i]));
      }
    }
  });
}

TEST_CASE_TEMPLATE("reduction: sum adds once and rounds once, integers wrap", T, EVERY_ELEMENT) {
  const pairs<T> input;
  for_each_set([&](instruction_set set) {
    bits<T> result = input.left;
    gw::detail::reduce_elements<T>(set, operation::sum, bytes<T>(result), bytes<T>(input.right), result.size());
    for (std::size_t i = 0; i < result.size(); ++i) {
      CAPTURE(input.left[i]);
      CAPTURE(input.right[i]);
      const auto expected = std::bit_cast<integer_of<T>>(add<T>(input.left[i], input.right[i]));
      if constexpr (is_float<T>) {
        if (is_nan<T>(expected)) {  // whose payload is free
          REQUIRE(is_nan<T>(result[i]));
          continue;
        }
      }
      REQUIRE(result[i] == expected);
    }
  });
}

TEST_CASE_TEMPLATE("reduction: every length, and not a byte beyond", T, EVERY_ELEMENT) {
  const pairs<T> input;
  for_each_set([&](instruction_set set) {
    for (const auto op : {operation::sum, operation::min, operation::max}) {
      for (const std::size_t elements : {0u, 1u, 7u, 8u, 31u, 32u, 33u, 63u, 97u, 511u, 512u, 513u, 1100u}) {
        CAPTURE(elements);
        bits<T> whole = input.left;
        gw::detail::reduce_elements<T>(set, op, bytes<T>(whole), bytes<T>(input.right), whole.size());
        bits<T> result = input.left;
        gw::detail::reduce_elements<T>(set, op, bytes<T>(result) + sizeof(T), bytes<T>(input.right) + sizeof(T),
                                       elements);
        REQUIRE(result[0] == input.left[0]);
        REQUIRE(std::equal(result.begin() + static_cast<std::ptrdiff_t>(elements) + 1, result.end(),
                           input.left.begin() + static_cast<std::ptrdiff_t>(elements) + 1));
        for (std::size_t i = 1; i <= elements; ++i) {
          if constexpr (is_float<T>) {
            if (is_nan<T>(whole[i])) {
              continue;
            }
          }
          REQUIRE(result[i] == whole[i]);
        }
      }
    }
  });
}

TEST_CASE("reduction: sums of float16 and bfloat16 round to nearest even") {
  // 2048 + 1 lies half-way between 2048 and 2050, 2050 + 1 between 2050 and 2052.
  std::vector<gw::float16> half = {gw::to_float16(2048), gw::to_float16(2050), gw::to_float16(65504)};
  const std::vector<gw::float16> to_half = {gw::to_float16(1), gw::to_float16(1), gw::to_float16(16)};
  gw::reduce_into(operation::sum, gw::element_kind::float16, reinterpret_cast<std::byte*>(half.data()),
                  reinterpret_cast<const std::byte*>(to_half.data()), half.size());
  CHECK(half[0] == gw::to_float16(2048));
  CHECK(half[1] == gw::to_float16(2052));
  CHECK(half[2].bits == 0x7c00u);
  std::vector<gw::bfloat16> brain = {gw::to_bfloat16(256), gw::to_bfloat16(258)};
  const std::vector<gw::bfloat16> to_brain = {gw::to_bfloat16(1), gw::to_bfloat16(1)};
  gw::reduce_into(operation::sum, gw::element_kind::bfloat16, reinterpret_cast<std::byte*>(brain.data()),
                  reinterpret_cast<const std::byte*>(to_brain.data()), brain.size());
  CHECK(brain[0] == gw::to_bfloat16(256));
  CHECK(brain[1] == gw::to_bfloat16(260));
}

TEST_CASE_TEMPLATE("reduction: halves divide through float", T, gw::float16, gw::bfloat16) {
  for (const std::uint32_t divisor : {2u, 3u, 5u, 7u, 64u, 1000u}) {
    for_each_set([&](instruction_set set) {
      bits<T> values(0x1'0000);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<std::uint16_t>(i);
      }
      gw::detail::divide_elements<T>(set, bytes<T>(values), values.size(), divisor);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float value = gw::to_float32(T{static_cast<std::uint16_t>(i)});
        // Loaded through a volatile, so that -ffast-math keeps the division. quotient_test proves the quotients right.
        const volatile float opaque = static_cast<float>(divisor);
        const float quotient = value / opaque;
        T expected{};
        if constexpr (std::is_same_v<T, gw::float16>) {
          expected = gw::to_float16(quotient);
        } else {
          expected = gw::to_bfloat16(quotient);
        }
        CAPTURE(i);
        CAPTURE(divisor);
        REQUIRE(values[i] == expected.bits);
      }
    });
  }
}

TEST_CASE_TEMPLATE("reduction: integers divide toward zero", T, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                   std::uint8_t, std::uint16_t, std::uint32_t, std::uint64_t) {
  for (const std::uint32_t divisor : {1u, 2u, 3u, 7u, 200u, 70000u, gw::divisor_max}) {
    bits<T> values = interesting<T>();
    const bits<T> original = values;
    gw::divide(gw::element_kind_of<T>, bytes<T>(values), values.size(), divisor);
    for (std::size_t i = 0; i < values.size(); ++i) {
      CAPTURE(original[i]);
      CAPTURE(divisor);
      const auto value = static_cast<T>(original[i]);
      const auto magnitude = static_cast<std::uint64_t>(value < T{0} ? 0 - static_cast<std::uint64_t>(value)
                                                                     : static_cast<std::uint64_t>(value));
      const std::uint64_t quotient = magnitude / divisor;
      REQUIRE(values[i] == static_cast<integer_of<T>>(value < T{0} ? 0 - quotient : quotient));
    }
  }
}

TEST_CASE("reduction: the public functions dispatch on the kind") {
  std::vector<float> sums = {1.0f, 2.0f, 3.0f};
  const std::vector<float> more = {0.5f, 7.0f, -3.0f};
  auto* const to = reinterpret_cast<std::byte*>(sums.data());
  const auto* const from = reinterpret_cast<const std::byte*>(more.data());
  gw::reduce_into(operation::sum, gw::element_kind::float32, to, from, 3);
  CHECK(sums == std::vector<float>{1.5f, 9.0f, 0.0f});
  gw::divide(gw::element_kind::float32, to, 3, 3);
  CHECK(sums == std::vector<float>{0.5f, 3.0f, 0.0f});
  gw::reduce_into(operation::max, gw::element_kind::float32, to, from, 3);
  CHECK(sums == std::vector<float>{0.5f, 7.0f, 0.0f});
  gw::reduce_into(operation::min, gw::element_kind::float32, to, from, 3);
  CHECK(sums == more);
  std::vector<double> doubles = {9.0};
  gw::divide(gw::element_kind::float64, reinterpret_cast<std::byte*>(doubles.data()), 1, 2);
  CHECK(doubles[0] == 4.5);
}

TEST_CASE("reduction: invalid arguments are broken contracts") {
  std::byte memory[16] = {};
  const std::byte other[16] = {};
  CHECK_THROWS_AS(gw::reduce_into(operation{9}, gw::element_kind::float32, memory, other, 1), gw::contract_violation);
  CHECK_THROWS_AS(gw::reduce_into(operation::sum, gw::element_kind{99}, memory, other, 1), gw::contract_violation);
  CHECK_THROWS_AS(gw::divide(gw::element_kind::float32, memory, 1, 0), gw::contract_violation);
  CHECK_THROWS_AS(gw::divide(gw::element_kind::float32, memory, 1, gw::divisor_max + 1), gw::contract_violation);
}
