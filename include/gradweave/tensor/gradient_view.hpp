/// @file
/// `gradient_view`: any gradient_tensor with its type erased, so that one synchronizer holds tensors of different types
/// and element kinds.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/tensor.hpp>

namespace gradweave {

/// Refers to a tensor. Of a view (std::span, say) the pointer is kept; any other tensor is kept by its address and
/// asked anew where its elements are, so it may reallocate between steps but must stay where it is.
class gradient_view {
 public:
  gradient_view() = default;

  template <gradient_tensor T>
  static gradient_view of(T& tensor) {
    gradient_view view;
    view.kind_ = tensor_kind(tensor);
    view.space_ = tensor_space(tensor);
    view.shape_ = shape_of(tensor);
    view.elements_ = view.shape_.elements();
    if constexpr (tensor_view<T>) {
      view.object_ = tensor_data(tensor);
    } else {
      view.object_ = std::addressof(tensor);
      view.locate_ = [](void* object) { return tensor_data(*static_cast<T*>(object)); };
      view.count_ = [](const void* object) { return shape_of(*static_cast<const T*>(object)).elements(); };
    }
    if constexpr (rebindable_tensor<T>) {
      view.rebind_ = [](void* object, void* memory) {
        detail::tensor_access<T>::rebind(*static_cast<T*>(object), memory);
      };
      view.rebind_object_ = std::addressof(tensor);
    }
    return view;
  }

  /// A flat buffer of `elements` elements of `kind` at `memory`.
  static gradient_view of_buffer(element_kind kind, void* memory, std::size_t elements) {
    gradient_view view;
    view.kind_ = kind;
    view.shape_ = tensor_shape(std::array{elements});
    view.elements_ = elements;
    view.object_ = memory;
    return view;
  }

  element_kind kind() const { return kind_; }
  memory_space space() const { return space_; }
  const tensor_shape& shape() const { return shape_; }
  std::size_t elements() const { return elements_; }
  std::size_t bytes() const { return elements_ * element_bytes(kind_); }

  /// Where the elements are now. Throws contract_violation where the tensor changed its size since it was registered.
  std::byte* data() const {
    if (locate_ == nullptr) {
      return static_cast<std::byte*>(object_);
    }
    if (count_(object_) != elements_) [[unlikely]] {
      violate("a tensor had " + std::to_string(elements_) + " elements when it was registered and has " +
              std::to_string(count_(object_)) + " now; register it again in a new manifest");
    }
    return locate_(object_);
  }

  bool can_rebind() const { return rebind_ != nullptr; }

  /// Points the tensor at `memory`, which from now on holds its elements.
  void rebind(std::byte* memory) {
    rebind_(rebind_object_, memory);
    object_ = memory;
    locate_ = nullptr;
  }

 private:
  void* object_ = nullptr;
  std::byte* (*locate_)(void*) = nullptr;
  std::size_t (*count_)(const void*) = nullptr;
  void (*rebind_)(void*, void*) = nullptr;
  void* rebind_object_ = nullptr;
  tensor_shape shape_;
  std::size_t elements_ = 0;
  element_kind kind_ = element_kind::float32;
  memory_space space_ = memory_space::host;
};

}  // namespace gradweave
