#include <gradweave/tensor/gradient_view.hpp>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/tensor.hpp>

namespace gw = gradweave;
using gw::gradient_view;

TEST_CASE("gradient_view: shows kind, shape, size and memory") {
  std::vector<double> tensor(6);
  const gradient_view view = gradient_view::of(tensor);
  CHECK(view.kind() == gw::element_kind::float64);
  CHECK(view.space() == gw::memory_space::host);
  CHECK(view.shape() == gw::tensor_shape(std::array{6}));
  CHECK(view.elements() == 6);
  CHECK(view.bytes() == 48);
  CHECK(view.data() == reinterpret_cast<std::byte*>(tensor.data()));
  CHECK(!view.can_rebind());
}

TEST_CASE("gradient_view: an owning tensor may reallocate, but not change its size") {
  std::vector<float> tensor(4);
  const gradient_view view = gradient_view::of(tensor);
  std::vector<float> other(4);
  tensor.swap(other);
  CHECK(view.data() == reinterpret_cast<std::byte*>(tensor.data()));
  tensor.push_back(1);
  std::string said;
  try {
    (void)view.data();
  } catch (const gw::contract_violation& error) {
    said = error.what();
  }
  CHECK(said.find("had 4 elements when it was registered and has 5 now") != std::string::npos);
}

TEST_CASE("gradient_view: of a view the memory is kept, not the object") {
  std::vector<float> memory(4);
  gradient_view view;
  {
    std::span<float> temporary(memory);
    view = gradient_view::of(temporary);
    temporary = {};
  }
  CHECK(view.data() == reinterpret_cast<std::byte*>(memory.data()));
  CHECK(view.elements() == 4);
}

TEST_CASE("gradient_view: rebinding points the tensor elsewhere and keeps the number of elements") {
  std::vector<float> before(4);
  std::vector<float> after(4);
  std::span<float> tensor(before);
  gradient_view view = gradient_view::of(tensor);
  REQUIRE(view.can_rebind());
  view.rebind(reinterpret_cast<std::byte*>(after.data()));
  CHECK(tensor.data() == after.data());
  CHECK(tensor.size() == 4);
  CHECK(view.data() == reinterpret_cast<std::byte*>(after.data()));
  CHECK(view.elements() == 4);
}

TEST_CASE("gradient_view: a flat buffer has one dimension") {
  std::array<gw::float16, 5> memory{};
  const gradient_view view = gradient_view::of_buffer(gw::element_kind::float16, memory.data(), memory.size());
  CHECK(view.shape() == gw::tensor_shape(std::array{5}));
  CHECK(view.bytes() == 10);
  CHECK(view.data() == reinterpret_cast<std::byte*>(memory.data()));
  CHECK(!view.can_rebind());
}

TEST_CASE("gradient_view: a default one has no elements") {
  const gradient_view view;
  CHECK(view.elements() == 0);
  CHECK(view.bytes() == 0);
  CHECK(view.data() == nullptr);
}
