#include <gradweave/collective/local_work.hpp>

#include <numeric>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

/// Floats in extents of so many elements each, that do not touch.
struct scattered {
  std::vector<float> memory;
  std::vector<extent> extents;

  scattered(std::size_t elements, std::size_t each) : memory(2 * elements, -1.0F) {
    for (std::size_t begin = 0; begin < elements; begin += each) {
      const std::size_t count = std::min(each, elements - begin);
      extents.push_back({reinterpret_cast<std::byte*>(memory.data() + 2 * begin), count * 4, begin * 4});
    }
  }
  float& at(std::size_t i, std::size_t each) { return memory[2 * (i / each * each) + i % each]; }
  buffer_range range(std::size_t begin, std::size_t count) const { return {extents, begin * 4, count * 4}; }
};

}  // namespace

TEST_CASE("copy_range: between buffers that are cut differently") {
  scattered from(100, 7);
  scattered to(100, 11);
  for (std::size_t i = 0; i < 100; ++i) {
    from.at(i, 7) = static_cast<float>(i);
  }
  copy_range(from.range(3, 90), to.range(10, 90));
  for (std::size_t i = 0; i < 100; ++i) {
    CHECK(to.at(i, 11) == (i < 10 ? -1.0F : static_cast<float>(i - 7)));
  }
}

TEST_CASE("range_combiner: combines some at a time, between buffers that are cut differently") {
  scattered a(1000, 7);
  scattered b(1000, 11);
  for (std::size_t i = 0; i < 1000; ++i) {
    a.at(i, 7) = static_cast<float>(i);
    b.at(i, 11) = 2;
  }
  range_combiner both;
  both.add_source(a.range(0, 500));
  both.add_source(b.range(500, 500));
  both.add_target(a.range(0, 500));
  both.add_target(b.range(500, 500));
  std::size_t done = 0;
  while (done != 2000) {
    const std::size_t more = both.combine_some({reduction_operation::sum, 2}, element_kind::float32, done, 400);
    REQUIRE(more != 0);
    REQUIRE(more <= 400);
    done += more;
  }
  for (std::size_t i = 0; i < 500; ++i) {
    CHECK(a.at(i, 7) == static_cast<float>(i + 2) / 2);
    CHECK(b.at(500 + i, 11) == static_cast<float>(i + 2) / 2);
  }
  CHECK(a.at(500, 7) == 500);
  CHECK(b.at(499, 11) == 2);
}

TEST_CASE("divide_range: touches the range alone") {
  scattered values(20, 3);
  for (std::size_t i = 0; i < 20; ++i) {
    values.at(i, 3) = 8;
  }
  divide_range(element_kind::float32, values.range(4, 10), 4);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK(values.at(i, 3) == (i >= 4 && i < 14 ? 2.0F : 8.0F));
  }
}
