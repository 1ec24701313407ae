/// @file
/// Between the element kind that gradients are stored in and the float32 that codecs work on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>

namespace gradweave::compression {

/// `room.size()` elements of `kind` at `memory` as float32: in place where they are that already, else in `room`.
/// `kind` must be a floating one of at most 32 bits.
inline std::span<const float> as_float32(element_kind kind, const std::byte* memory, std::span<float> room) {
  switch (kind) {
    case element_kind::float32: return {reinterpret_cast<const float*>(memory), room.size()};
    case element_kind::float16: convert(std::span(reinterpret_cast<const float16*>(memory), room.size()), room); break;
    case element_kind::bfloat16:
      convert(std::span(reinterpret_cast<const bfloat16*>(memory), room.size()), room);
      break;
    default: require(false, "as_float32: float32 does not hold this element kind");
  }
  return room;
}

/// Stores float32 values as elements of `kind`, rounding to nearest even.
inline void store_float32(element_kind kind, std::span<const float> values, std::byte* memory) {
  switch (kind) {
    case element_kind::float32: std::copy(values.begin(), values.end(), reinterpret_cast<float*>(memory)); break;
    case element_kind::float16: convert(values, std::span(reinterpret_cast<float16*>(memory), values.size())); break;
    case element_kind::bfloat16: convert(values, std::span(reinterpret_cast<bfloat16*>(memory), values.size())); break;
    default: require(false, "store_float32: float32 values can't be stored as this element kind");
  }
}

}  // namespace gradweave::compression
