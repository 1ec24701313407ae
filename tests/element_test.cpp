#include <gradweave/element.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <doctest/doctest.h>

namespace gw = gradweave;

namespace {

/// A user's own 16-bit float.
struct my_half {
  std::uint16_t bits;
};

/// Near misses: each breaks one thing.
struct without_traits {
  float value;
};
struct of_another_size {
  float value;
};
struct not_trivially_copyable {
  float value;
  not_trivially_copyable(const not_trivially_copyable& other) : value(other.value) {}
};

}  // namespace

template <>
struct gradweave::element_traits<my_half> {
  static constexpr element_kind kind = element_kind::float16;
};
template <>
struct gradweave::element_traits<of_another_size> {
  static constexpr element_kind kind = element_kind::float64;
};
template <>
struct gradweave::element_traits<not_trivially_copyable> {
  static constexpr element_kind kind = element_kind::float32;
};

// What travels on the wire never changes.
static_assert(static_cast<int>(gw::element_kind::float32) == 1 && static_cast<int>(gw::element_kind::float64) == 2);
static_assert(static_cast<int>(gw::element_kind::float16) == 3 && static_cast<int>(gw::element_kind::bfloat16) == 4);
static_assert(static_cast<int>(gw::element_kind::int8) == 5 && static_cast<int>(gw::element_kind::int64) == 8);
static_assert(static_cast<int>(gw::element_kind::uint8) == 9 && static_cast<int>(gw::element_kind::uint64) == 12);

static_assert(gw::element_kind_of<float> == gw::element_kind::float32);
static_assert(gw::element_kind_of<double> == gw::element_kind::float64);
static_assert(gw::element_kind_of<gw::float16> == gw::element_kind::float16);
static_assert(gw::element_kind_of<gw::bfloat16> == gw::element_kind::bfloat16);
static_assert(gw::element_kind_of<std::int8_t> == gw::element_kind::int8);
static_assert(gw::element_kind_of<std::int16_t> == gw::element_kind::int16);
static_assert(gw::element_kind_of<std::int32_t> == gw::element_kind::int32);
static_assert(gw::element_kind_of<long> == gw::element_kind::int64);
static_assert(gw::element_kind_of<long long> == gw::element_kind::int64);
static_assert(gw::element_kind_of<std::uint8_t> == gw::element_kind::uint8);
static_assert(gw::element_kind_of<std::uint16_t> == gw::element_kind::uint16);
static_assert(gw::element_kind_of<std::uint32_t> == gw::element_kind::uint32);
static_assert(gw::element_kind_of<unsigned long> == gw::element_kind::uint64);
static_assert(gw::element_kind_of<unsigned long long> == gw::element_kind::uint64);
static_assert(gw::element_kind_of<my_half> == gw::element_kind::float16);

static_assert(!gw::element<bool> && !gw::element<char> && !gw::element<char16_t> && !gw::element<wchar_t>);
static_assert(!gw::element<const float> && !gw::element<const int> && !gw::element<float*> && !gw::element<void>);
static_assert(!gw::element<long double> && !gw::element<std::byte>);
static_assert(!gw::element<without_traits> && !gw::element_has_kind<without_traits>);
static_assert(!gw::element<of_another_size> && gw::element_has_kind<of_another_size>);
static_assert(!gw::element<not_trivially_copyable> && gw::element_has_kind<not_trivially_copyable>);

static_assert(std::is_trivially_copyable_v<gw::float16> && sizeof(gw::float16) == 2 && alignof(gw::float16) == 2);
static_assert(std::is_trivially_copyable_v<gw::bfloat16> && sizeof(gw::bfloat16) == 2 && alignof(gw::bfloat16) == 2);

TEST_CASE("element: every byte off the wire is a valid kind with a name, a size and a type, or none of these") {
  for (int value = 0; value < 256; ++value) {
    CAPTURE(value);
    const auto kind = static_cast<gw::element_kind>(value);
    if (value >= 1 && value <= 12) {
      CHECK(gw::is_valid(kind));
      CHECK(gw::element_name(kind) != "invalid");
      CHECK(gw::is_floating(kind) == (value <= 4));
      const bool same = gw::visit_element(kind, [&]<class T>(std::type_identity<T>) {
        return gw::element_kind_of<T> == kind && sizeof(T) == gw::element_bytes(kind);
      });
      CHECK(same);
    } else {
      CHECK_FALSE(gw::is_valid(kind));
      CHECK_FALSE(gw::is_floating(kind));
      CHECK(gw::element_name(kind) == "invalid");
      CHECK_THROWS_AS(static_cast<void>(gw::element_bytes(kind)), gw::contract_violation);
      CHECK_THROWS_AS(gw::visit_element(kind, [](auto) {}), gw::contract_violation);
    }
  }
}

TEST_CASE("element: names") {
  CHECK(gw::element_name(gw::element_kind::float32) == "float32");
  CHECK(gw::element_name(gw::element_kind::float16) == "float16");
  CHECK(gw::element_name(gw::element_kind::bfloat16) == "bfloat16");
  CHECK(gw::element_name(gw::element_kind::int64) == "int64");
  CHECK(gw::element_name(gw::element_kind::uint8) == "uint8");
  CHECK(gw::element_name(gw::element_kind::uint64) == "uint64");
}

TEST_CASE("element: visit_element works at compile time and hands results through by reference") {
  static_assert(gw::visit_element(gw::element_kind::int16, []<class T>(std::type_identity<T>) { return sizeof(T); }) ==
                2);
  int target = 0;
  gw::visit_element(gw::element_kind::uint32, [&](auto) -> int& { return target; }) = 5;
  CHECK(target == 5);
}

TEST_CASE("element: is_finite looks at bits") {
  const auto finite32 = [](std::uint32_t bits) { return gw::is_finite(std::bit_cast<float>(bits)); };
  CHECK(finite32(0));
  CHECK(finite32(1));
  CHECK(finite32(0x7f7f'ffff));
  CHECK(finite32(0xff7f'ffff));
  CHECK_FALSE(finite32(0x7f80'0000));
  CHECK_FALSE(finite32(0xff80'0000));
  CHECK_FALSE(finite32(0x7f80'0001));
  CHECK_FALSE(finite32(0xffff'ffff));
  const auto finite64 = [](std::uint64_t bits) { return gw::is_finite(std::bit_cast<double>(bits)); };
  CHECK(finite64(0x7fef'ffff'ffff'ffff));
  CHECK(finite64(0x8000'0000'0000'0001));
  CHECK_FALSE(finite64(0x7ff0'0000'0000'0000));
  CHECK_FALSE(finite64(0xfff0'0000'0000'0001));
  for (std::uint32_t bits = 0; bits < 0x1'0000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    REQUIRE(gw::is_finite(gw::float16{half}) == ((bits & 0x7c00u) != 0x7c00u));
    REQUIRE(gw::is_finite(gw::bfloat16{half}) == ((bits & 0x7f80u) != 0x7f80u));
  }
  CHECK_FALSE(gw::is_finite(my_half{0x7c00}));
}
