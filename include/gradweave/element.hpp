/// @file
/// Elements: the numbers that gradients are made of, by format, and which C++ type stands for which format.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include <gradweave/assert.hpp>
#include <gradweave/config.hpp>
#include <gradweave/element/bfloat16.hpp>
#include <gradweave/element/float16.hpp>

namespace gradweave {

/// The format of an element. The values travel on the wire and never change; 13 and 14 are kept for float8_e4m3 and
/// float8_e5m2.
enum class element_kind : std::uint8_t {
  float32 = 1,
  float64 = 2,
  float16 = 3,
  bfloat16 = 4,
  int8 = 5,
  int16 = 6,
  int32 = 7,
  int64 = 8,
  uint8 = 9,
  uint16 = 10,
  uint32 = 11,
  uint64 = 12,
};

/// Says which format a type has, as `static constexpr element_kind kind`. Specialize it for your own type whose bytes
/// are that format, such as a compiler's or CUDA's 16-bit float. Every integer type has one by its width and sign, but
/// for bool and the character types (which `signed char` and `unsigned char` are not, here).
template <class T>
struct element_traits {};

namespace detail {

template <class T>
concept counting_integer = std::integral<T> &&
                           !(std::same_as<T, bool> || std::same_as<T, char> || std::same_as<T, wchar_t> ||
                             std::same_as<T, char8_t> || std::same_as<T, char16_t> || std::same_as<T, char32_t>) &&
                           std::same_as<T, std::remove_cv_t<T>> && sizeof(T) <= 8;

}  // namespace detail

template <>
struct element_traits<float> {
  static constexpr element_kind kind = element_kind::float32;
};

template <>
struct element_traits<double> {
  static constexpr element_kind kind = element_kind::float64;
};

template <>
struct element_traits<float16> {
  static constexpr element_kind kind = element_kind::float16;
};

template <>
struct element_traits<bfloat16> {
  static constexpr element_kind kind = element_kind::bfloat16;
};

template <class T>
  requires detail::counting_integer<T>
struct element_traits<T> {
  static constexpr element_kind kind = static_cast<element_kind>(
      static_cast<unsigned>(std::signed_integral<T> ? element_kind::int8 : element_kind::uint8) +
      static_cast<unsigned>(std::countr_zero(sizeof(T))));
};

/// Whether a value read off the wire names an element kind of this version.
constexpr bool is_valid(element_kind kind) noexcept {
  return kind >= element_kind::float32 && kind <= element_kind::uint64;
}

/// Whether the format has fractions, infinities and NaNs.
constexpr bool is_floating(element_kind kind) noexcept {
  return kind >= element_kind::float32 && kind <= element_kind::bfloat16;
}

/// For messages; "invalid" where `kind` is not valid.
constexpr std::string_view element_name(element_kind kind) noexcept {
  constexpr std::string_view names[] = {"float32", "float64", "float16", "bfloat16", "int8",   "int16",
                                        "int32",   "int64",   "uint8",   "uint16",   "uint32", "uint64"};
  return is_valid(kind) ? names[static_cast<unsigned>(kind) - 1u] : "invalid";
}

/// Size of one element in bytes. `kind` must be valid.
constexpr std::size_t element_bytes(element_kind kind) {
  constexpr std::uint8_t bytes[] = {4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8};
  require(is_valid(kind), "element_bytes: not an element kind; check values from the wire with is_valid");
  return bytes[static_cast<unsigned>(kind) - 1u];
}

/// Atom: the type names a format, by element_traits.
template <class T>
concept element_has_kind = requires {
  { element_traits<T>::kind } -> std::convertible_to<element_kind>;
};

/// A type whose values are elements: it names a format, has that format's size, and its bytes are the value.
template <class T>
concept element =
    element_has_kind<T> && std::is_trivially_copyable_v<T> && sizeof(T) == element_bytes(element_traits<T>::kind);

/// The format of a type.
template <element T>
inline constexpr element_kind element_kind_of = element_traits<T>::kind;

/// Calls `visitor(std::type_identity<T>{})` with the type that stands for `kind` here, and returns what it returns.
/// Dispatch once a bucket, not once an element. `kind` must be valid.
template <std::invocable<std::type_identity<float>> Visitor>
constexpr decltype(auto) visit_element(element_kind kind, Visitor&& visitor) {
  switch (kind) {
    case element_kind::float32: return visitor(std::type_identity<float>{});
    case element_kind::float64: return visitor(std::type_identity<double>{});
    case element_kind::float16: return visitor(std::type_identity<float16>{});
    case element_kind::bfloat16: return visitor(std::type_identity<bfloat16>{});
    case element_kind::int8: return visitor(std::type_identity<std::int8_t>{});
    case element_kind::int16: return visitor(std::type_identity<std::int16_t>{});
    case element_kind::int32: return visitor(std::type_identity<std::int32_t>{});
    case element_kind::int64: return visitor(std::type_identity<std::int64_t>{});
    case element_kind::uint8: return visitor(std::type_identity<std::uint8_t>{});
    case element_kind::uint16: return visitor(std::type_identity<std::uint16_t>{});
    case element_kind::uint32: return visitor(std::type_identity<std::uint32_t>{});
    case element_kind::uint64: return visitor(std::type_identity<std::uint64_t>{});
  }
  violate("visit_element: not an element kind; check values from the wire with is_valid");
}

namespace detail {

/// The encoding of a floating format as an integer of the same width: apart from the sign, what comes after `infinity`
/// is NaN.
template <element_kind Kind>
struct float_encoding;

template <>
struct float_encoding<element_kind::float32> {
  using integer = std::int32_t;
  static constexpr integer infinity = 0x7f80'0000, canonical_nan = 0x7fc0'0000;
};

template <>
struct float_encoding<element_kind::float64> {
  using integer = std::int64_t;
  static constexpr integer infinity = 0x7ff0'0000'0000'0000, canonical_nan = 0x7ff8'0000'0000'0000;
};

template <>
struct float_encoding<element_kind::float16> {
  using integer = std::int16_t;
  static constexpr integer infinity = 0x7c00, canonical_nan = 0x7e00;
};

template <>
struct float_encoding<element_kind::bfloat16> {
  using integer = std::int16_t;
  static constexpr integer infinity = 0x7f80, canonical_nan = 0x7fc0;
};

/// A constant, since what runs on a device may not call numeric_limits.
template <class Integer>
inline constexpr Integer all_but_sign = std::numeric_limits<Integer>::max();

}  // namespace detail

/// Whether a floating element is neither infinity nor NaN. Looks at bits: -ffast-math, under which compilers take the
/// answer of std::isfinite for granted, does not change it.
template <element T>
  requires(is_floating(element_kind_of<T>))
GRADWEAVE_HOST_DEVICE constexpr bool is_finite(T value) noexcept {
  using encoding = detail::float_encoding<element_kind_of<T>>;
  using integer = typename encoding::integer;
  return (__builtin_bit_cast(integer, value) & detail::all_but_sign<integer>) < encoding::infinity;
}

}  // namespace gradweave
