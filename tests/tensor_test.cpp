#include <gradweave/tensor.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_gradient_tensor<gt::tensor_archetype>());
static_assert(gw::explain_gradient_tensor<gt::foreign_tensor_archetype>());

// Tier 3: contiguous sized ranges of elements.
static_assert(gw::gradient_tensor<std::vector<float>> && gw::gradient_tensor<std::array<double, 3>>);
static_assert(gw::gradient_tensor<std::span<gw::bfloat16>> && gw::gradient_tensor<std::span<float, 4>>);
static_assert(gw::gradient_tensor<float[5]> && gw::gradient_tensor<std::vector<std::int8_t>>);
static_assert(!gw::gradient_tensor<const std::vector<float>> && !gw::gradient_tensor<std::span<const float>>);
static_assert(!gw::gradient_tensor<std::list<float>> && !gw::gradient_tensor<std::deque<float>>);
static_assert(!gw::gradient_tensor<std::vector<bool>> && !gw::gradient_tensor<std::string>);
static_assert(!gw::gradient_tensor<std::vector<float*>> && !gw::gradient_tensor<float> && !gw::gradient_tensor<float*>);
static_assert(!gw::adapted_tensor<std::list<float>> && gw::adapted_tensor<std::span<const float>>);

// Views own nothing.
static_assert(gw::tensor_view<std::span<float>> && !gw::tensor_view<std::vector<float>>);
static_assert(!gw::tensor_view<std::array<float, 2>> && !gw::tensor_view<float[2]>);

// Only what can be pointed elsewhere is rebindable.
static_assert(gw::rebindable_tensor<std::span<float>> && !gw::rebindable_tensor<std::span<float, 4>>);
static_assert(!gw::rebindable_tensor<std::vector<float>> && !gw::rebindable_tensor<std::array<float, 2>>);

namespace {

// Near misses of tier 2: each breaks one thing.

struct member_tensor {
  float memory[6] = {};
  float* gradweave_data() { return memory; }
  std::array<int, 2> gradweave_shape() const { return {2, 3}; }
};
static_assert(gw::gradient_tensor<member_tensor>);

struct has_no_data : member_tensor {
 private:
  float* gradweave_data();
};
static_assert(!gw::adapted_tensor<has_no_data> && !gw::gradient_tensor<has_no_data>);

struct data_is_const : member_tensor {
  const float* gradweave_data() { return memory; }
};
static_assert(gw::adapted_tensor<data_is_const> && !gw::tensor_has_data<data_is_const>);
static_assert(gw::tensor_has_shape<data_is_const> && !gw::gradient_tensor<data_is_const>);

struct data_is_a_vector : member_tensor {
  std::vector<float> gradweave_data() { return {}; }
};
static_assert(!gw::tensor_has_data<data_is_a_vector> && !gw::gradient_tensor<data_is_a_vector>);

struct has_no_shape {
  float* gradweave_data() { return nullptr; }
};
static_assert(gw::tensor_has_data<has_no_shape> && gw::tensor_has_kind<has_no_shape>);
static_assert(!gw::tensor_has_shape<has_no_shape> && !gw::gradient_tensor<has_no_shape>);

struct shape_is_of_floats : member_tensor {
  std::array<float, 2> gradweave_shape() const { return {2, 3}; }
};
static_assert(!gw::tensor_has_shape<shape_is_of_floats> && !gw::gradient_tensor<shape_is_of_floats>);

struct shape_is_not_const : member_tensor {
  std::array<int, 2> gradweave_shape() { return {2, 3}; }
};
static_assert(!gw::tensor_has_shape<shape_is_not_const> && !gw::gradient_tensor<shape_is_not_const>);

struct kind_is_unknown : member_tensor {
  void* gradweave_data() { return memory; }
};
static_assert(gw::tensor_has_data<kind_is_unknown> && gw::tensor_has_shape<kind_is_unknown>);
static_assert(!gw::tensor_has_kind<kind_is_unknown> && !gw::gradient_tensor<kind_is_unknown>);

struct kind_is_a_number : kind_is_unknown {
  int gradweave_kind() const { return 1; }
};
static_assert(!gw::tensor_has_kind<kind_is_a_number> && !gw::gradient_tensor<kind_is_a_number>);

struct space_is_a_number : member_tensor {
  int gradweave_space() const { return 2; }
};
static_assert(gw::gradient_tensor<space_is_a_number>);  // no member that means anything here: host

struct kind_is_told : kind_is_unknown {
  gw::element_kind gradweave_kind() const { return gw::element_kind::float16; }
  gw::memory_space gradweave_space() const { return gw::memory_space::cuda; }
  void gradweave_rebind(void*) {}
};
static_assert(gw::gradient_tensor<kind_is_told> && gw::rebindable_tensor<kind_is_told>);
static_assert(!gw::tensor_view<kind_is_told>);

/// All three tiers match; traits win, then members.
struct three_tiers : std::vector<float> {
  using std::vector<float>::vector;
  double from_traits = 0;
  std::int32_t from_member = 0;
  std::int32_t* gradweave_data() { return &from_member; }
  std::array<int, 1> gradweave_shape() const { return {1}; }
};
struct two_tiers : three_tiers {};

}  // namespace

template <>
struct gradweave::tensor_traits<three_tiers> {
  static constexpr bool is_view = true;
  static double* data(three_tiers& tensor) { return &tensor.from_traits; }
  static std::vector<long> shape(const three_tiers&) { return {1, 1, 1}; }
};

TEST_CASE("tensor_shape: takes any range of integers and multiplies them") {
  CHECK(gw::tensor_shape().elements() == 1);
  CHECK(gw::tensor_shape(std::vector<int>{}).extents().empty());
  CHECK(gw::tensor_shape(std::array{3, 4}).elements() == 12);
  CHECK(gw::tensor_shape(std::list<unsigned short>{2, 3, 5}).elements() == 30);
  CHECK(gw::tensor_shape(std::array<std::int64_t, 3>{7, 0, 9}).elements() == 0);
  CHECK(gw::tensor_shape(std::array{3, 4}) == gw::tensor_shape(std::vector<long>{3, 4}));
  CHECK(gw::tensor_shape(std::array{3, 4}) != gw::tensor_shape(std::array{4, 3}));
  CHECK(gw::tensor_shape(std::array{12}) != gw::tensor_shape(std::array{12, 1}));
  CHECK(gw::tensor_shape(std::array{1, 2, 3, 4, 5, 6, 7, 8}).extents().size() == 8);
}

TEST_CASE("tensor_shape: refuses negative extents and a ninth dimension") {
  CHECK_THROWS_AS(gw::tensor_shape(std::array{3, -1}), gw::contract_violation);
  CHECK_THROWS_AS(gw::tensor_shape(std::array{1, 2, 3, 4, 5, 6, 7, 8, 9}), gw::contract_violation);
}

TEST_CASE("tensor: ranges have one dimension and their element's kind") {
  std::vector<gw::bfloat16> vector(5);
  CHECK(gw::tensor_data(vector) == reinterpret_cast<std::byte*>(vector.data()));
  CHECK(gw::tensor_kind(vector) == gw::element_kind::bfloat16);
  CHECK(gw::shape_of(vector) == gw::tensor_shape(std::array{5}));
  CHECK(gw::tensor_space(vector) == gw::memory_space::host);
  double plain[3] = {};
  CHECK(gw::tensor_data(plain) == reinterpret_cast<std::byte*>(plain));
  CHECK(gw::shape_of(plain) == gw::tensor_shape(std::array{3}));
}

TEST_CASE("tensor: the first tier that matches wins") {
  three_tiers three;
  CHECK(gw::tensor_data(three) == reinterpret_cast<std::byte*>(&three.from_traits));
  CHECK(gw::tensor_kind(three) == gw::element_kind::float64);
  CHECK(gw::shape_of(three) == gw::tensor_shape(std::array{1, 1, 1}));
  CHECK(gw::tensor_view<three_tiers>);
  two_tiers two;
  CHECK(gw::tensor_data(two) == reinterpret_cast<std::byte*>(&two.from_member));
  CHECK(gw::tensor_kind(two) == gw::element_kind::int32);
}

TEST_CASE("tensor: members may tell kind and space at run time") {
  kind_is_told tensor;
  CHECK(gw::tensor_kind(tensor) == gw::element_kind::float16);
  CHECK(gw::tensor_space(tensor) == gw::memory_space::cuda);
  CHECK(gw::shape_of(tensor).elements() == 6);
}
