/// @file
/// Numbers in tests: elements of a kind that is known at run time only, buffers that lie in pieces, and how far a
/// result may be from the exact one.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::testing {

/// How far a result may be from the exact value, and up to which magnitude it must be finite.
struct rounding_bound {
  double relative = 0;           ///< times the value's magnitude
  double relative_to_block = 0;  ///< times the largest magnitude in its block (in its bucket, for a whole reduction)
  double absolute = 0;           ///< in any case
  double largest = std::numeric_limits<float>::max();  ///< inputs up to this magnitude stay finite

  double allowed(double magnitude, double block_magnitude) const {
    return relative * magnitude + relative_to_block * block_magnitude + absolute;
  }
};

/// What one rounding to `kind` may change: half the distance from 1 to the next number, relative, and half of the
/// smallest subnormal. Nothing for integers.
inline rounding_bound rounding_of(element_kind kind) {
  switch (kind) {
    case element_kind::float32: return {0x1p-24, 0, 0x1p-150};
    case element_kind::float64: return {0x1p-53, 0, 0};
    case element_kind::float16: return {0x1p-11, 0, 0x1p-25, 65504};
    case element_kind::bfloat16: return {0x1p-8, 0, 0x1p-134, 0x1.fep127};
    default: return {};
  }
}

/// Stores `value` as element `index` of `memory`, rounded to the kind.
inline void write_value(element_kind kind, std::byte* memory, std::size_t index, double value) {
  visit_element(kind, [&]<class T>(std::type_identity<T>) {
    T stored{};
    if constexpr (std::same_as<T, float16>) {
      stored = to_float16(static_cast<float>(value));
    } else if constexpr (std::same_as<T, bfloat16>) {
      stored = to_bfloat16(static_cast<float>(value));
    } else {
      stored = static_cast<T>(value);
    }
    std::memcpy(memory + index * sizeof(T), &stored, sizeof(T));
  });
}

inline double read_value(element_kind kind, const std::byte* memory, std::size_t index) {
  return visit_element(kind, [&]<class T>(std::type_identity<T>) {
    T stored{};
    std::memcpy(&stored, memory + index * sizeof(T), sizeof(T));
    if constexpr (std::same_as<T, float16> || std::same_as<T, bfloat16>) {
      return static_cast<double>(to_float32(stored));
    } else {
      return static_cast<double>(stored);
    }
  });
}

/// A buffer of elements that lies in several pieces of memory, with canaries around each.
class scattered_buffer {
 public:
  scattered_buffer(element_kind kind, std::size_t elements, std::size_t pieces = 1) : kind_(kind), elements_(elements) {
    const std::size_t width = element_bytes(kind);
    const std::size_t share = (elements + pieces - 1) / std::max<std::size_t>(1, pieces);
    memory_.assign(elements * width + (pieces + 1) * gap_bytes, canary);
    std::size_t at = gap_bytes;
    for (std::size_t begin = 0; begin < elements; begin += share) {
      const std::size_t bytes = std::min(share, elements - begin) * width;
      append_extent(extents_, memory_.data() + at, bytes);
      std::fill_n(memory_.data() + at, bytes, std::byte{0});
      at += bytes + gap_bytes;
    }
  }
  scattered_buffer(scattered_buffer&&) = default;
  scattered_buffer& operator=(scattered_buffer&&) = default;

  element_kind kind() const { return kind_; }
  std::size_t elements() const { return elements_; }
  std::span<const extent> extents() const { return extents_; }

  void write(std::size_t index, double value) { write_value(kind_, at(index), 0, value); }
  double read(std::size_t index) const { return read_value(kind_, at(index), 0); }

  /// All elements in order, as one run of bytes.
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> copied;
    for (const extent& piece : extents_) {
      copied.insert(copied.end(), piece.memory, piece.memory + piece.bytes);
    }
    return copied;
  }

  /// Whether nothing was written between the pieces.
  bool intact() const {
    const std::byte* from = memory_.data();
    const auto untouched = [&](const std::byte* until) {
      return std::all_of(from, until, [](std::byte b) { return b == canary; });
    };
    for (const extent& piece : extents_) {
      if (!untouched(piece.memory)) {
        return false;
      }
      from = piece.memory + piece.bytes;
    }
    return untouched(memory_.data() + memory_.size());
  }

 private:
  static constexpr std::size_t gap_bytes = 64;
  static constexpr std::byte canary{0xc5};

  std::byte* at(std::size_t index) const {
    const std::size_t width = element_bytes(kind_);
    return first_piece(extents_, index * width, width).data();
  }

  element_kind kind_;
  std::size_t elements_;
  std::vector<std::byte> memory_;
  std::vector<extent> extents_;
};

}  // namespace gradweave::testing
