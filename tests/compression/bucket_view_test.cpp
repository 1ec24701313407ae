#include <gradweave/compression/bucket_view.hpp>

#include <cstddef>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/values.hpp>

using namespace gradweave;

TEST_CASE("bucket_view: transforms all elements, or one member's, of any kind, over extents") {
  for (const element_kind kind :
       {element_kind::float32, element_kind::float64, element_kind::float16, element_kind::bfloat16}) {
    testing::scattered_buffer data(kind, 1000, 3);
    for (std::size_t i = 0; i < data.elements(); ++i) {
      data.write(i, static_cast<double>(i % 10));
    }
    const std::vector<bucket_member> members{{slot{4}, 0, 300, "first"}, {slot{2}, 300, 700, "second"}};
    const compression::bucket_view view({kind, 1000, members, data.extents()}, 3, 7);
    CHECK(view.ranks() == 3);
    CHECK(view.step() == 7);
    CHECK(view.members()[1].name == "second");
    view.transform([](auto value) { return value + 1; });
    view.transform(view.members()[1], [](auto value) { return value * -2; });
    CHECK(data.intact());
    for (std::size_t i = 0; i < data.elements(); ++i) {
      REQUIRE(data.read(i) == static_cast<double>(i % 10 + 1) * (i < 300 ? 1 : -2));
    }
  }
}

TEST_CASE("bucket_view: gives spans of the bucket's own kind, and of no other") {
  testing::scattered_buffer data(element_kind::float32, 10, 2);
  const std::vector<bucket_member> members{{slot{0}, 0, 4, "a"}, {slot{1}, 4, 6, "b"}};
  const compression::bucket_view view({element_kind::float32, 10, members, data.extents()}, 2, 0);
  std::vector<std::size_t> runs;
  const auto count = [&](auto values) { runs.push_back(values.size()); };
  view.for_each_span<float>(count);
  view.for_each_span<float>(members[1], count);
  CHECK(runs == std::vector<std::size_t>{5, 5, 1, 5});
  view.for_each_span<float>([](std::span<float> values) { std::iota(values.begin(), values.end(), 1.0F); });
  CHECK(data.read(4) == 5);
  CHECK_THROWS_WITH_AS(view.for_each_span<double>(count), doctest::Contains("holds float32 elements, not float64"),
                       contract_violation);
}
