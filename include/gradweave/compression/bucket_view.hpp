/// @file
/// `bucket_view`: what a hook sees of a bucket. It can change values; it can change neither how many there are nor what
/// becomes of their sum.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradweave/assert.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/storage.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::compression {

/// A bucket in one step. Cheap to copy; valid while the function runs that it was given to.
class bucket_view {
 public:
  bucket_view(const bucket_layout& layout, int ranks, std::uint64_t step)
      : layout_(layout), ranks_(ranks), step_(step) {}

  element_kind kind() const { return layout_.kind; }
  std::size_t elements() const { return layout_.elements; }
  int ranks() const { return ranks_; }
  /// Counted from 0.
  std::uint64_t step() const { return step_; }
  /// The gradients in it, with their names.
  std::span<const bucket_member> members() const { return layout_.members; }

  /// Calls `use(std::span<T>)` for one run of elements after another, of all or of one member. Throws
  /// contract_violation where the bucket holds another kind.
  template <element T, std::invocable<std::span<T>> Use>
  void for_each_span(Use&& use) const {
    for_each_span<T>(whole(), use);
  }
  template <element T, std::invocable<std::span<T>> Use>
  void for_each_span(const bucket_member& member, Use&& use) const {
    if (element_kind_of<T> != kind()) {
      violate("bucket_view: the bucket holds " + std::string(element_name(kind())) + " elements, not " +
              std::string(element_name(element_kind_of<T>)) + "; ask kind(), or use transform()");
    }
    for_each_piece(
        layout_.memory, member.begin * sizeof(T), member.elements * sizeof(T),
        [&](std::byte* memory, std::size_t bytes) { use(std::span(reinterpret_cast<T*>(memory), bytes / sizeof(T))); });
  }

  /// value = function(value) for all elements or those of one member, in order: float64 as double, any other kind as
  /// float, rounded to nearest even where it is stored in 16 bits.
  template <class Function>
    requires(std::invocable<Function&, float> && std::invocable<Function&, double>)
  void transform(Function&& function) const {
    transform(whole(), function);
  }
  template <class Function>
    requires(std::invocable<Function&, float> && std::invocable<Function&, double>)
  void transform(const bucket_member& member, Function&& function) const {
    const auto in_place = [&]<class T>(std::span<T> values) {
      std::transform(values.begin(), values.end(), values.begin(),
                     [&](T value) { return static_cast<T>(function(value)); });
    };
    switch (kind()) {
      case element_kind::float64: return for_each_span<double>(member, in_place);
      case element_kind::float32: return for_each_span<float>(member, in_place);
      default: transform_halves(member, in_place);
    }
  }

 private:
  bucket_member whole() const { return {{}, 0, layout_.elements}; }

  template <class InPlace>
  void transform_halves(const bucket_member& member, InPlace in_place) const {
    std::array<float, 256> room;
    const std::size_t width = element_bytes(kind());
    for_each_piece(layout_.memory, member.begin * width, member.elements * width,
                   [&](std::byte* memory, std::size_t bytes) {
                     while (bytes != 0) {
                       const auto values = std::span(room).first(std::min(room.size(), bytes / width));
                       as_float32(kind(), memory, values);
                       in_place(values);
                       store_float32(kind(), values, memory);
                       memory += values.size() * width;
                       bytes -= values.size() * width;
                     }
                   });
  }

  bucket_layout layout_;
  int ranks_;
  std::uint64_t step_;
};

}  // namespace gradweave::compression
