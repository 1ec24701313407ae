#include <gradweave/element/combine.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/element/float16.hpp>

using namespace gradweave;

namespace {

template <class T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}
template <class T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

std::vector<std::vector<float>> random_arrays(std::size_t count, std::size_t elements, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<std::vector<float>> arrays(count, std::vector<float>(elements));
  for (auto& array : arrays) {
    for (float& value : array) {
      value = values(random);
    }
  }
  return arrays;
}

}  // namespace

TEST_CASE("combine: adds in the order of the sources and divides, whichever targets are sources too") {
  constexpr std::uint32_t seed = 7;
  CAPTURE(seed);
  for (const std::size_t sources : {1U, 2U, 3U, 5U}) {
    for (const std::size_t elements : {0U, 1U, 2049U, 10'000U}) {
      const auto arrays = random_arrays(sources, elements, seed);
      std::vector<float> expected = arrays[0];
      for (std::size_t s = 1; s < sources; ++s) {
        for (std::size_t i = 0; i < elements; ++i) {
          expected[i] += arrays[s][i];
        }
      }
      for (float& value : expected) {
        value /= 3;
      }
      // In place everywhere, beginning with each of them; then into other memory.
      for (std::size_t first = 0; first <= sources; ++first) {
        auto work = arrays;
        std::vector<float> apart(elements);
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (auto& array : work) {
          from.push_back(bytes_of(array));
        }
        if (first < sources) {
          for (std::size_t t = 0; t < sources; ++t) {
            to.push_back(bytes_of(work[(first + t) % sources]));
          }
        }
        to.push_back(bytes_of(apart));
        combine({reduction_operation::sum, 3}, element_kind::float32, from, to, elements);
        CAPTURE(sources);
        CAPTURE(first);
        CHECK(apart == expected);
        for (std::size_t s = 0; s < sources; ++s) {
          CHECK(work[s] == (first < sources ? expected : arrays[s]));
        }
      }
    }
  }
}

TEST_CASE("combine: halves are added in float and rounded once") {
  // 2048 + 1 + 1 in float16 steps rounds back to 2048 each time; in float it is 2050.
  const std::vector<float16> large(3000, to_float16(2048.0F));
  const std::vector<float16> one(3000, to_float16(1.0F));
  std::vector<float16> sum(3000);
  const std::byte* const from[] = {bytes_of(large), bytes_of(one), bytes_of(one)};
  std::byte* const to[] = {bytes_of(sum)};
  combine({}, element_kind::float16, from, to, sum.size());
  for (const float16 value : sum) {
    REQUIRE(to_float32(value) == 2050.0F);
  }
  combine({reduction_operation::max}, element_kind::float16, from, to, sum.size());
  CHECK(to_float32(sum[2999]) == 2048.0F);
}

TEST_CASE("combine: integers take the minimum and divide toward zero") {
  std::vector<std::int32_t> a = {7, -9, 100};
  const std::vector<std::int32_t> b = {8, -3, -100};
  const std::byte* const from[] = {bytes_of(a), bytes_of(b)};
  std::byte* const to[] = {bytes_of(a)};
  combine({reduction_operation::min, 2}, element_kind::int32, from, to, a.size());
  CHECK(a == std::vector<std::int32_t>{3, -4, -50});
}

TEST_CASE("combine: without sources or targets, or with a wrong divisor, it is a contract violation") {
  std::vector<float> a(4);
  const std::byte* const from[] = {bytes_of(a)};
  std::byte* const to[] = {bytes_of(a)};
  CHECK_THROWS_AS(combine({}, element_kind::float32, {}, to, 4), contract_violation);
  CHECK_THROWS_AS(combine({}, element_kind::float32, from, {}, 4), contract_violation);
  CHECK_THROWS_AS(combine({reduction_operation::sum, 0}, element_kind::float32, from, to, 4), contract_violation);
}
