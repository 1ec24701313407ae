#include <gradweave/synchronizer/arena_layout.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE(
    "lay_out_arena: kinds lie together, last slot first; own gradients are packed, resident ones on cache lines") {
  std::vector<float> a(3), b(5), c(7);
  std::vector<double> d(2);
  std::span<float> resident(c);
  manifest gradients;
  gradients.add("a", a);
  gradients.add("d", d);
  gradients.add("b", b);
  gradients.add("c", in_arena(resident));
  std::vector<float> flat(9);
  gradients.add_range("flat", flat.data(), flat.size());
  const auto layout = detail::lay_out_arena(gradients.entries());
  CHECK(layout.offsets[3] == 0);   // c
  CHECK(layout.offsets[2] == 28);  // b, right behind it
  CHECK(layout.offsets[0] == 48);  // a
  CHECK(layout.offsets[1] == 64);  // d, another kind
  CHECK(layout.bytes == 80);
}
