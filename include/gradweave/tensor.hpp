/// @file
/// How a foreign tensor type plugs in. `gradient_tensor` adapts a type in three tiers; the first that matches wins:
///  1. a specialization of `gradweave::tensor_traits<T>`;
///  2. prefixed members: `gradweave_data()`, `gradweave_shape()`;
///  3. a contiguous sized range of elements: std::vector, std::array, std::span, C arrays.
/// docs/reference/tensor.md has the requirements.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/memory_space.hpp>

namespace gradweave {

/// A tensor's extents, outermost first, each counted in elements; at most `rank_max` of them. No extents is a scalar.
class tensor_shape {
 public:
  static constexpr std::size_t rank_max = 8;

  constexpr tensor_shape() = default;

  /// From any range of non-negative integers. Throws contract_violation where there are more than rank_max of them, or
  /// one is negative.
  template <std::ranges::input_range Range>
    requires(std::integral<std::ranges::range_value_t<Range>> &&
             !std::same_as<std::remove_cvref_t<Range>, tensor_shape>)
  constexpr explicit tensor_shape(const Range& extents) {
    for (const auto extent : extents) {
      require(rank_ < rank_max, "a tensor has more than 8 dimensions; register it flattened");
      require(std::cmp_greater_equal(extent, 0), "a tensor's extent is negative");
      extents_[rank_++] = static_cast<std::size_t>(extent);
    }
  }

  constexpr std::span<const std::size_t> extents() const { return {extents_.data(), rank_}; }

  /// The product of the extents.
  constexpr std::size_t elements() const {
    std::size_t product = 1;
    for (const std::size_t extent : extents()) {
      product *= extent;
    }
    return product;
  }

  friend constexpr bool operator==(const tensor_shape&, const tensor_shape&) = default;

 private:
  std::array<std::size_t, rank_max> extents_{};
  std::size_t rank_ = 0;
};

/// Tier 1: specialize for a type of your own. Static members, `T&` being the tensor:
///  - `data(T&)`: pointer to the first of its elements, which lie without gaps; its type tells the element kind, unless
///  - `kind(const T&)` (optional) tells it at run time; `data` may then return `void*` or `std::byte*`;
///  - `shape(const T&)`: any range of integers;
///  - `space(const T&)` (optional): the memory_space, host where absent;
///  - `rebind(T&, void*)` (optional): point the tensor at other memory, so that its gradient can live in the arena;
///  - `static constexpr bool is_view = true` (optional): the type owns no memory, so a temporary may be registered.
template <class T>
struct tensor_traits;

namespace detail {

template <class T>
concept has_tensor_traits = requires { sizeof(tensor_traits<T>); };

template <class T>
concept has_data_member = requires(T& tensor) { tensor.gradweave_data(); };

template <class Range>
using range_element = std::remove_cv_t<std::ranges::range_value_t<Range>>;

template <class T>
concept element_range = std::ranges::contiguous_range<T> && std::ranges::sized_range<T> && element<range_element<T>>;

/// Tiers 2 and 3, written as traits, so that everything below sees one interface.
template <class T>
struct tensor_access;

template <has_tensor_traits T>
struct tensor_access<T> : tensor_traits<T> {};

template <has_data_member T>
  requires(!has_tensor_traits<T>)
struct tensor_access<T> {
  static auto data(T& tensor) { return tensor.gradweave_data(); }
  static auto shape(const T& tensor)
    requires requires { tensor.gradweave_shape(); }
  {
    return tensor.gradweave_shape();
  }
  static element_kind kind(const T& tensor)
    requires requires {
      { tensor.gradweave_kind() } -> std::same_as<element_kind>;
    }
  {
    return tensor.gradweave_kind();
  }
  static memory_space space(const T& tensor)
    requires requires {
      { tensor.gradweave_space() } -> std::same_as<memory_space>;
    }
  {
    return tensor.gradweave_space();
  }
  static void rebind(T& tensor, void* memory)
    requires requires { tensor.gradweave_rebind(memory); }
  {
    tensor.gradweave_rebind(memory);
  }
};

template <element_range T>
  requires(!has_tensor_traits<T> && !has_data_member<T>)
struct tensor_access<T> {
  static constexpr bool is_view = std::ranges::borrowed_range<T> && !std::is_array_v<T>;
  static auto data(T& tensor) { return std::ranges::data(tensor); }
  static std::array<std::size_t, 1> shape(const T& tensor) { return {std::ranges::size(tensor)}; }
  static void rebind(T& tensor, void* memory)
    requires(std::same_as<T, std::span<range_element<T>>>)
  {
    tensor = T(static_cast<range_element<T>*>(memory), tensor.size());
  }
};

template <class T>
using tensor_pointer = decltype(tensor_access<T>::data(std::declval<T&>()));

template <class T>
concept tells_kind = requires(const T& tensor) {
  { tensor_access<T>::kind(tensor) } -> std::same_as<element_kind>;
};

}  // namespace detail

/// Atom: one of the three tiers matches.
template <class T>
concept adapted_tensor = requires { sizeof(detail::tensor_access<T>); };

/// Atom: its data is a pointer to mutable memory.
template <class T>
concept tensor_has_data = adapted_tensor<T> && requires(T& tensor) {
  { detail::tensor_access<T>::data(tensor) } -> std::convertible_to<void*>;
};

/// Atom: its element kind is known, from the pointer's type or at run time.
template <class T>
concept tensor_has_kind =
    tensor_has_data<T> && (detail::tells_kind<T> || element<std::remove_pointer_t<detail::tensor_pointer<T>>>);

/// Atom: its shape is a range of integers.
template <class T>
concept tensor_has_shape =
    adapted_tensor<T> && requires(const T& tensor) { tensor_shape(detail::tensor_access<T>::shape(tensor)); };

/// A tensor that can hold a gradient or a parameter: contiguous, mutable, of known kind and shape.
template <class T>
concept gradient_tensor = tensor_has_data<T> && tensor_has_kind<T> && tensor_has_shape<T>;

/// A gradient_tensor that can be pointed at other memory, so that its gradient can live in the arena.
template <class T>
concept rebindable_tensor =
    gradient_tensor<T> && requires(T& tensor, void* memory) { detail::tensor_access<T>::rebind(tensor, memory); };

/// A gradient_tensor that owns no memory: a temporary of it may be registered.
template <class T>
concept tensor_view = gradient_tensor<T> && requires { requires detail::tensor_access<T>::is_view; };

/// Says in one sentence which requirement of gradient_tensor `T` misses. Compiles for a gradient_tensor.
template <class T>
consteval bool explain_gradient_tensor() {
  static_assert(adapted_tensor<T>,
                "gradient_tensor: no tier matches; specialize gradweave::tensor_traits<T>, add gradweave_data() and "
                "gradweave_shape(), or make it a contiguous sized range of elements");
  if constexpr (adapted_tensor<T>) {
    static_assert(tensor_has_data<T>, "gradient_tensor: data() must return a pointer to mutable memory");
    static_assert(tensor_has_shape<T>, "gradient_tensor: shape() must exist and return a range of integers");
    if constexpr (tensor_has_data<T>) {
      static_assert(tensor_has_kind<T>,
                    "gradient_tensor: the element kind is unknown; return a pointer to an element type from data(), or "
                    "add kind(), or specialize gradweave::element_traits for the element type");
    }
  }
  return gradient_tensor<T>;
}

/// Where a tensor's elements lie right now.
template <gradient_tensor T>
std::byte* tensor_data(T& tensor) {
  return static_cast<std::byte*>(static_cast<void*>(detail::tensor_access<T>::data(tensor)));
}

template <gradient_tensor T>
element_kind tensor_kind(const T& tensor) {
  if constexpr (detail::tells_kind<T>) {
    return detail::tensor_access<T>::kind(tensor);
  } else {
    return element_kind_of<std::remove_pointer_t<detail::tensor_pointer<T>>>;
  }
}

template <gradient_tensor T>
tensor_shape shape_of(const T& tensor) {
  return tensor_shape(detail::tensor_access<T>::shape(tensor));
}

template <gradient_tensor T>
memory_space tensor_space(const T& tensor) {
  if constexpr (requires { detail::tensor_access<T>::space(tensor); }) {
    return detail::tensor_access<T>::space(tensor);
  } else {
    return memory_space::host;
  }
}

}  // namespace gradweave
