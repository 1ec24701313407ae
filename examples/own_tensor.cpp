// Your own tensor types as gradients. Two ways to adapt a type are shown:
//  - members with the prefix gradweave_, where the type is yours to edit;
//  - a specialization of gradweave::tensor_traits, where it comes from somewhere else.
// Exits with 0 only if every rank ends up with the right averages.

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

// [members]
/// A matrix of one's own: dense, row by row.
class matrix {
 public:
  matrix(std::size_t rows, std::size_t columns)
      : rows_(rows), columns_(columns), own_(rows * columns), data_(own_.data()) {}
  matrix(const matrix&) = delete;  // data_ may point into own_
  matrix& operator=(const matrix&) = delete;

  float& operator()(std::size_t row, std::size_t column) { return data_[row * columns_ + column]; }
  const float* data() const { return data_; }

  // These three make it a gradweave::rebindable_tensor. The pointer's type tells the element kind.
  float* gradweave_data() { return data_; }
  std::array<std::size_t, 2> gradweave_shape() const { return {rows_, columns_}; }
  // Optional: take other memory from now on. It lets a gradient live in the arena, where the collectives work on it in
  // place; without it every gradient is copied there and back. The arena lives as long as the synchronizer.
  void gradweave_rebind(void* memory) {
    data_ = static_cast<float*>(memory);
    own_ = {};
  }

 private:
  std::size_t rows_;
  std::size_t columns_;
  std::vector<float> own_;
  float* data_;
};
// Where a requirement is missed, this line says in one sentence which one.
static_assert(gw::explain_gradient_tensor<matrix>());
// [/members]

// A type that you can't edit, with an element type that is known at run time only.
namespace elsewhere {

enum class number_type { single_precision, double_precision };

struct array {
  number_type type = number_type::single_precision;
  std::vector<int> dimensions;
  std::shared_ptr<void> storage;
};

inline array make_array(number_type type, std::vector<int> dimensions) {
  std::size_t bytes = type == number_type::single_precision ? sizeof(float) : sizeof(double);
  for (const int extent : dimensions) {
    bytes *= static_cast<std::size_t>(extent);
  }
  return {type, std::move(dimensions), std::shared_ptr<void>(std::calloc(bytes, 1), std::free)};
}

}  // namespace elsewhere

// [traits]
template <>
struct gradweave::tensor_traits<elsewhere::array> {
  static void* data(elsewhere::array& tensor) { return tensor.storage.get(); }
  static const std::vector<int>& shape(const elsewhere::array& tensor) { return tensor.dimensions; }
  // Needed since the pointer is a void*.
  static element_kind kind(const elsewhere::array& tensor) {
    return tensor.type == elsewhere::number_type::single_precision ? element_kind::float32 : element_kind::float64;
  }
};
static_assert(gw::explain_gradient_tensor<elsewhere::array>());
// [/traits]

namespace {

/// An exception on one rank reaches the others too, so this is all that a check needs.
void check(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

void run_rank(gw::backend::loopback backend) {
  const int rank = backend.rank();
  const int size = backend.size();

  // [register]
  matrix weight(3, 4);
  elsewhere::array scale = elsewhere::make_array(elsewhere::number_type::double_precision, {5});

  // Tensors of different types and element kinds go into one manifest.
  gw::manifest gradients;
  const gw::slot weight_slot = gradients.add("weight", gw::in_arena(weight));  // memory from the arena: no copy
  const gw::slot scale_slot = gradients.add("scale", scale);                   // its own memory: copied when ready
  auto sync = gw::synchronize(std::move(gradients), std::move(backend));
  // The matrix points into the arena now.
  check(weight.data() == sync.gradient<float>(weight_slot).data(), "the weight's gradient is not in the arena");
  // [/register]

  for (int step = 0; step < 3; ++step) {
    auto* const scales = static_cast<double*>(scale.storage.get());
    sync.step([&](auto& current) {
      for (std::size_t i = 0; i < 5; ++i) {
        scales[i] = 10.0 * rank + step;
      }
      current.ready(scale_slot);
      for (std::size_t row = 0; row < 3; ++row) {
        for (std::size_t column = 0; column < 4; ++column) {
          weight(row, column) = static_cast<float>(rank) + static_cast<float>(row * 4 + column);
        }
      }
      current.ready(weight_slot);
    });
    // The mean of 0, 1, ... size - 1 is (size - 1) / 2; all of these numbers are exact.
    const double mean_rank = (size - 1) / 2.0;
    check(scales[4] == 10 * mean_rank + step, "the average of scale is wrong");
    check(weight(2, 3) == static_cast<float>(mean_rank) + 11, "the average of weight is wrong");
  }
}

}  // namespace

int main() {
  try {
    for (const int ranks : {1, 2, 4}) {
      gw::backend::run_loopback(ranks, run_rank);
      std::printf("%d ranks: averages of both tensor types are right\n", ranks);
    }
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "own_tensor: %s\n", fault.what());
    return 1;
  }
}
