// EXPECT: gradient_tensor: no tier matches; specialize gradweave::tensor_traits<T>
// EXPECT: gradient_tensor: data\(\) must return a pointer to mutable memory
// EXPECT: gradient_tensor: shape\(\) must exist and return a range of integers
// EXPECT: gradient_tensor: the element kind is unknown
#include <list>
#include <vector>

#include <gradweave/manifest.hpp>

struct has_no_shape {
  float* gradweave_data();
};
struct kind_is_a_number {
  void* gradweave_data();
  std::vector<int> gradweave_shape() const;
  int gradweave_kind() const;
};

void add(gradweave::manifest& gradients, std::list<float>& list, const std::vector<float>& constant,
         has_no_shape& shapeless, kind_is_a_number& kindless, std::vector<float>& right) {
  gradients.add("a list", list);
  gradients.add("a constant", constant);
  gradients.add("a parameter that is no tensor", shapeless, right);
  gradients.add("a gradient that is no tensor", right, kindless);
}
