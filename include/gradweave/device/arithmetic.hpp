/// @file
/// What kernels and their host twins do with one element, and in which order a scatter adds up: shared, so that both yield
/// the same bits.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <gradweave/config.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/float8.hpp>
#include <gradweave/element/float8_block.hpp>
#include <gradweave/element/rounded.hpp>

namespace gradweave::detail {

/// NaNs as one, since host and device make different ones of the same operation.
GRADWEAVE_HOST_DEVICE constexpr float canonical(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  return (bits & 0x7fff'ffffu) > 0x7f80'0000u ? __builtin_bit_cast(float, 0x7fc0'0000u) : value;
}

GRADWEAVE_HOST_DEVICE constexpr double canonical(double value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint64_t, value);
  const bool nan = (bits & 0x7fff'ffff'ffff'ffffu) > 0x7ff0'0000'0000'0000u;
  return nan ? __builtin_bit_cast(double, std::uint64_t{0x7ff8'0000'0000'0000u}) : value;
}

/// How a format turns a float into what travels, and back. `exponent` is the block's, where the format has any.
template <wire_format Format>
struct wire_codec;

template <>
struct wire_codec<wire_format::float32> {
  using element = float;
  GRADWEAVE_HOST_DEVICE static element encode(float value, int) noexcept { return canonical(value); }
  GRADWEAVE_HOST_DEVICE static float decode(element value, int) noexcept { return canonical(value); }
};

template <>
struct wire_codec<wire_format::float16> {
  using element = float16;
  GRADWEAVE_HOST_DEVICE static element encode(float value, int) noexcept { return to_float16(value); }
  GRADWEAVE_HOST_DEVICE static float decode(element value, int) noexcept { return to_float32(value); }
};

template <>
struct wire_codec<wire_format::bfloat16> {
  using element = bfloat16;
  GRADWEAVE_HOST_DEVICE static element encode(float value, int) noexcept { return to_bfloat16(value); }
  GRADWEAVE_HOST_DEVICE static float decode(element value, int) noexcept { return to_float32(value); }
};

template <class Float8>
struct float8_codec {
  using element = Float8;
  GRADWEAVE_HOST_DEVICE static element encode(float value, int exponent) noexcept {
    return to_float8<Float8>(value, exponent);
  }
  GRADWEAVE_HOST_DEVICE static float decode(element value, int exponent) noexcept {
    return from_float8(value, exponent);
  }
};

template <>
struct wire_codec<wire_format::float8_e4m3> : float8_codec<float8_e4m3> {};

template <>
struct wire_codec<wire_format::float8_e5m2> : float8_codec<float8_e5m2> {};

/// Calls `use(integral_constant<wire_format, ...>)`. Throws contract_violation for an invalid format.
template <class Use>
void visit_format(wire_format format, Use&& use) {
  using enum wire_format;
  switch (format) {
    case float32: return use(std::integral_constant<wire_format, float32>{});
    case float16: return use(std::integral_constant<wire_format, float16>{});
    case bfloat16: return use(std::integral_constant<wire_format, bfloat16>{});
    case float8_e4m3: return use(std::integral_constant<wire_format, float8_e4m3>{});
    case float8_e5m2: return use(std::integral_constant<wire_format, float8_e5m2>{});
  }
  violate("device_kernels: not a wire format");
}

/// Calls `use(type_identity<T>)`. Throws contract_violation for a kind that is not floating.
template <class Use>
void visit_floating(element_kind kind, Use&& use) {
  switch (kind) {
    case element_kind::float32: return use(std::type_identity<float>{});
    case element_kind::float64: return use(std::type_identity<double>{});
    case element_kind::float16: return use(std::type_identity<float16>{});
    case element_kind::bfloat16: return use(std::type_identity<bfloat16>{});
    default: violate("device_kernels: only floating elements are computed with");
  }
}

/// An element as it travels, what its encoding lost, and whether it is lost altogether.
template <class Element>
struct encoded_element {
  Element value;
  float residual;
  bool non_finite;
};

/// Encodes what already holds the old residual.
template <wire_format Format>
GRADWEAVE_HOST_DEVICE encoded_element<typename wire_codec<Format>::element> encode_element(float value,
                                                                                           int exponent) noexcept {
  const auto encoded = wire_codec<Format>::encode(value, exponent);
  const float decoded = wire_codec<Format>::decode(encoded, exponent);
  // A residual that is not finite would spoil every step to come, and this one is lost already.
  const bool non_finite = !is_finite(decoded);
  return {encoded, non_finite ? 0.0f : rounded_sum(value, -decoded), non_finite};
}

/// What ends a sum.
GRADWEAVE_HOST_DEVICE inline float divided(float sum, std::uint32_t divisor) noexcept {
  return canonical(divisor > 1 ? rounded_quotient(sum, static_cast<float>(divisor)) : sum);
}

GRADWEAVE_HOST_DEVICE inline float scaled(float value, double factor) noexcept {
  return canonical(rounded_product(value, static_cast<float>(factor)));
}
GRADWEAVE_HOST_DEVICE inline double scaled(double value, double factor) noexcept {
  return canonical(rounded_product(value, factor));
}
GRADWEAVE_HOST_DEVICE inline float16 scaled(float16 value, double factor) noexcept {
  return to_float16(rounded_product(to_float32(value), static_cast<float>(factor)));
}
GRADWEAVE_HOST_DEVICE inline bfloat16 scaled(bfloat16 value, double factor) noexcept {
  return to_bfloat16(rounded_product(to_float32(value), static_cast<float>(factor)));
}

/// Adds one value to a summary. A square of 24 bits by 24 is exact in double, so whether the addition is fused with it
/// changes nothing; a double's is fused on purpose.
GRADWEAVE_HOST_DEVICE inline void add_square(scatter_summary& summary, float value) noexcept {
  if (is_finite(value)) {
    const double wide = value;
    summary.squared_norm += wide * wide;
  } else {
    ++summary.non_finite;
  }
}
GRADWEAVE_HOST_DEVICE inline void add_square(scatter_summary& summary, double value) noexcept {
  if (is_finite(value)) {
    summary.squared_norm = std::fma(value, value, summary.squared_norm);
  } else {
    ++summary.non_finite;
  }
}
GRADWEAVE_HOST_DEVICE inline void add_square(scatter_summary& summary, float16 value) noexcept {
  add_square(summary, to_float32(value));
}
GRADWEAVE_HOST_DEVICE inline void add_square(scatter_summary& summary, bfloat16 value) noexcept {
  add_square(summary, to_float32(value));
}

GRADWEAVE_HOST_DEVICE inline void add(scatter_summary& to, const scatter_summary& other) noexcept {
  to.squared_norm += other.squared_norm;
  to.non_finite += other.non_finite;
}

// The order of a scatter's sum: it depends on positions in the packed buffer alone, not on addresses nor on how many threads
// there are. A buffer is cut into tiles, a tile into words; thread t of a tile adds up words t, t + 256, ... in order, 256
// sums are added pairwise, and the tiles' sums are added up by 256 threads in the same way.

inline constexpr std::size_t word_bytes = packed_alignment;
inline constexpr std::size_t tile_threads = 256;
inline constexpr std::size_t tile_words = 1024;
inline constexpr std::size_t tile_bytes = tile_words * word_bytes;

GRADWEAVE_HOST_DEVICE constexpr std::size_t quotient_up(std::size_t a, std::size_t b) noexcept {
  return a / b + (a % b != 0 ? 1 : 0);
}

GRADWEAVE_HOST_DEVICE constexpr std::size_t tiles_of(std::size_t bytes) noexcept {
  return quotient_up(bytes, tile_bytes);
}

/// The extent that holds `position`, of those from `first` to before `last`.
GRADWEAVE_HOST_DEVICE inline std::size_t extent_at(const extent* extents, std::size_t first, std::size_t last,
                                                   std::size_t position) noexcept {
  while (last - first > 1) {
    const std::size_t middle = first + (last - first) / 2;
    if (extents[middle].offset <= position) {
      first = middle;
    } else {
      last = middle;
    }
  }
  return first;
}

}  // namespace gradweave::detail
