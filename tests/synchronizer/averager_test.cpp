#include <gradweave/synchronizer/averager.hpp>

#include <array>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

namespace {

/// What two floats become before and after a reduction that does nothing.
std::vector<float> around(averager average) {
  std::vector<float> values{3, -8};
  const extent memory{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
  average.prepare(element_kind::float32, {&memory, 1});
  average.complete(element_kind::float32, {&memory, 1});
  return values;
}

}  // namespace

TEST_CASE("averager: a mean is divided by the programs, before, or by square roots; a sum not at all") {
  CHECK(averager({}, 4).divisor() == 4);
  CHECK(around(averager({}, 4)) == std::vector<float>{3, -8});
  const averager before({.divide = division::before}, 4);
  CHECK(before.divisor() == 1);
  CHECK(around(before) == std::vector<float>{0.75F, -2});
  const averager split({.divide = division::split}, 4);
  CHECK(split.divisor() == 1);
  CHECK(around(split) == std::vector<float>{0.75F, -2});
  const averager sum({.average = averaging::sum}, 4);
  CHECK(sum.divisor() == 1);
  CHECK(around(sum) == std::vector<float>{3, -8});
}

TEST_CASE("averager: a weight is a rank's share of the samples, times the ranks that the mean divides by") {
  averager weighted({.average = averaging::weighted_mean}, 2);
  CHECK(weighted.divisor() == 2);
  weighted.weigh(30, std::array<std::uint64_t, 2>{30, 10});
  CHECK(around(weighted) == std::vector<float>{4.5F, -12});
  weighted.weigh(7, std::array<std::uint64_t, 2>{7, 7});
  CHECK(around(weighted) == std::vector<float>{3, -8});
  weighted.weigh(0, std::array<std::uint64_t, 2>{0, 0});
  CHECK(around(weighted) == std::vector<float>{0, 0});
}
