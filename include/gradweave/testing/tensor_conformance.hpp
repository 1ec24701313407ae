/// @file
/// The conformance kit of tensor types. docs/reference/tensor.md has what it checks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>

#include <gradweave/element.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/tensor.hpp>
#include <gradweave/tensor/gradient_view.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/guarded_memory.hpp>
#include <gradweave/testing/values.hpp>

namespace gradweave::testing {

/// What a factory's tensors should look like; what is not given is not compared.
struct tensor_conformance_options {
  std::optional<element_kind> kind;
  std::optional<tensor_shape> shape;
};

namespace detail {

/// Whether `view` holds the value that was last written at each position, after all have been written.
inline bool holds_what_is_written(const gradient_view& view) {
  const auto value_at = [](std::size_t i) { return static_cast<double>(i % 100); };
  for (std::size_t i = 0; i < view.elements(); ++i) {
    write_value(view.kind(), view.data(), i, value_at(i));
  }
  for (std::size_t i = 0; i < view.elements(); ++i) {
    if (read_value(view.kind(), view.data(), i) != value_at(i)) {
      return false;
    }
  }
  return true;
}

template <gradient_tensor T>
void check_rebinding(T& tensor, conformance_recorder& recorder) {
  const tensor_shape before = shape_of(tensor);
  gradient_view view = gradient_view::of(tensor);
  canaried_memory memory(view.bytes());
  recorder.check(view.can_rebind(), "a rebindable tensor's view must be rebindable");
  view.rebind(memory.bytes().data());
  recorder.check(tensor_data(tensor) == memory.bytes().data(), "after rebinding, data() must be the new memory");
  recorder.check(shape_of(tensor) == before, "rebinding must keep the shape, and with it the number of elements");
  recorder.check(view.data() == memory.bytes().data() && holds_what_is_written(gradient_view::of(tensor)),
                 "after rebinding, elements must be read and written in the new memory");
  recorder.check(memory.intact(), "after rebinding, elements must lie within the new memory");
  const double first = view.elements() == 0 ? 0 : read_value(view.kind(), memory.bytes().data(), 0);
  recorder.check(view.elements() == 0 || first == read_value(view.kind(), tensor_data(tensor), 0),
                 "after rebinding, the tensor and the new memory must hold the same");
}

}  // namespace detail

/// Checks the tensors that `make()` returns: that shape, kind, space and address are stable, that elements are read and
/// written in place, that a view's copy sees the same memory, and that rebinding keeps the number of elements.
template <std::invocable Make>
  requires gradient_tensor<std::remove_cvref_t<std::invoke_result_t<Make&>>>
conformance_report check_tensor(Make&& make, const tensor_conformance_options& options = {}) {
  using tensor_type = std::remove_cvref_t<std::invoke_result_t<Make&>>;
  conformance_recorder recorder;
  recorder.part("tensor", [&] {
    tensor_type tensor = make();
    const tensor_shape shape = shape_of(tensor);
    std::byte* const data = tensor_data(tensor);
    recorder.check(tensor_data(tensor) == data && shape_of(tensor) == shape,
                   "data() and shape() must give the same answer twice");
    recorder.check(is_valid(tensor_kind(tensor)), "kind() must be an element kind");
    recorder.check(!options.kind || tensor_kind(tensor) == *options.kind, "kind() is not the one that was expected");
    recorder.check(!options.shape || shape == *options.shape, "shape() is not the one that was expected");
    recorder.check(tensor_space(tensor) == memory_space::host,
                   "this kit reads elements, so they must be in host memory");
    recorder.check(data != nullptr || shape.elements() == 0, "data() must not be null where there are elements");
    const gradient_view view = gradient_view::of(tensor);
    recorder.check(view.data() == data && view.shape() == shape && view.kind() == tensor_kind(tensor) &&
                       view.elements() == shape.elements(),
                   "a gradient_view must show the tensor's data, shape and kind");
    recorder.check(detail::holds_what_is_written(view), "elements must hold what was written to them");
    recorder.check(tensor_data(tensor) == data, "data() must give the same address as long as nothing was rebound");
    if constexpr (tensor_view<tensor_type>) {
      tensor_type copy = tensor;
      recorder.check(tensor_data(copy) == data,
                     "is_view says that no memory is owned, but a copy has memory of its own");
    }
    tensor_type other = make();
    recorder.check(shape_of(other) == shape, "the factory must make tensors of one shape");
    if constexpr (rebindable_tensor<tensor_type>) {
      detail::check_rebinding(tensor, recorder);
    }
  });
  return recorder.report();
}

}  // namespace gradweave::testing
