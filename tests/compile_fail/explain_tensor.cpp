// EXPECT: gradient_tensor: no tier matches; specialize gradweave::tensor_traits<T>, add gradweave_data\(\) and gradweave_shape\(\), or make it a contiguous sized range of elements
// EXPECT: gradient_tensor: data\(\) must return a pointer to mutable memory
// EXPECT: gradient_tensor: shape\(\) must exist and return a range of integers
// EXPECT: gradient_tensor: the element kind is unknown; return a pointer to an element type from data\(\), or add kind\(\), or specialize gradweave::element_traits for the element type
#include <list>
#include <vector>

#include <gradweave/tensor.hpp>

struct has_no_shape {
  float* gradweave_data();
};
struct has_no_kind {
  void* gradweave_data();
  std::vector<int> gradweave_shape() const;
};

static_assert(gradweave::explain_gradient_tensor<std::list<float>>());
static_assert(gradweave::explain_gradient_tensor<const std::vector<float>>());
static_assert(gradweave::explain_gradient_tensor<has_no_shape>());
static_assert(gradweave::explain_gradient_tensor<has_no_kind>());
