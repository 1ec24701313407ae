#include <gradweave/device/host_kernels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/element/combine.hpp>
#include <gradweave/element/convert.hpp>
#include <gradweave/reduction.hpp>

#include "tests/support/kernel_trials.hpp"

namespace gw = gradweave;

static_assert(gw::explain_device_kernels<gw::host_kernels>());

namespace {

constexpr gw::host_kernels kernels;
constexpr float infinity = std::numeric_limits<float>::infinity();

std::vector<float> random_floats(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, 3);
  std::vector<float> made(count);
  std::generate(made.begin(), made.end(), [&] { return values(random); });
  return made;
}

std::byte* bytes_of(auto& values) { return reinterpret_cast<std::byte*>(values.data()); }

/// The host's memory as kernel_trials.hpp asks for it.
struct host_side {
  std::vector<std::vector<std::byte>> allocated;

  std::byte* allocate(std::size_t bytes) {
    constexpr std::size_t alignment = 256;
    allocated.emplace_back(bytes + alignment);
    std::byte* const data = allocated.back().data();
    return data + (alignment - reinterpret_cast<std::uintptr_t>(data) % alignment);
  }
  void write(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  void read(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  gw::host_stream stream() const { return {}; }
  void synchronize() {}
};

}  // namespace

TEST_CASE("host_kernels: what they yield depends on no address, and they write nowhere else") {
  host_side memory;
  CHECK(gw::tests::compare_with_twins(kernels, memory, 20) == "");
}

TEST_CASE("host_kernels: scatter undoes gather, and sums squares in double") {
  std::vector<float> memory = random_floats(100'000, 1);
  memory[5] = -infinity;
  std::vector<gw::extent> extents;
  double squares = 0;
  std::size_t packed_elements = 0;
  for (std::size_t begin = 1, length = 0; begin + length < memory.size(); begin += length + 3, length += 7) {
    extents.push_back({bytes_of(memory) + begin * 4, length * 4, packed_elements * 4});
    packed_elements += length;
    for (std::size_t i = begin; i < begin + length; ++i) {
      squares += std::isinf(memory[i]) ? 0 : static_cast<double>(memory[i]) * memory[i];
    }
  }
  auto table = kernels.prepare(extents, gw::element_kind::float32);
  std::vector<float> packed(packed_elements);
  kernels.gather({}, table, bytes_of(packed));
  const std::vector<float> before = memory;
  std::fill(memory.begin(), memory.end(), 0.0f);
  gw::scatter_summary summary{1, 1};
  kernels.scatter({}, table, bytes_of(packed), &summary);
  for (const gw::extent& each : extents) {
    const auto begin = static_cast<std::size_t>(each.memory - bytes_of(memory));
    REQUIRE(std::memcmp(each.memory, reinterpret_cast<const std::byte*>(before.data()) + begin, each.bytes) == 0);
  }
  CHECK(summary.non_finite == 1);
  CHECK(summary.squared_norm == doctest::Approx(squares).epsilon(1e-12));

  auto none = kernels.prepare({}, gw::element_kind::float32);
  kernels.scatter({}, none, bytes_of(packed), &summary);
  CHECK(summary == gw::scatter_summary{});
}

TEST_CASE("host_kernels: scale as the library's reduction does") {
  for (const gw::element_kind kind :
       {gw::element_kind::float32, gw::element_kind::float64, gw::element_kind::float16, gw::element_kind::bfloat16}) {
    std::vector<float> memory = random_floats(999, 2);
    if (kind == gw::element_kind::float64) {
      std::fill(memory.begin(), memory.end(), 1.7f);  // no NaN, of whose bits scale() says nothing
    }
    std::vector<float> expected = memory;
    const std::size_t elements = memory.size() * sizeof(float) / gw::element_bytes(kind);
    kernels.scale({}, {kind, bytes_of(memory), elements, 1.0 / 3});
    gw::scale(kind, bytes_of(expected), elements, 1.0 / 3);
    CHECK(std::memcmp(memory.data(), expected.data(), elements * gw::element_bytes(kind)) == 0);
  }
}

TEST_CASE_TEMPLATE("host_kernels: halves are encoded, decoded and summed as by convert and combine", Half, gw::float16,
                   gw::bfloat16) {
  constexpr auto format = std::is_same_v<Half, gw::float16> ? gw::wire_format::float16 : gw::wire_format::bfloat16;
  std::vector<float> values = random_floats(1000, 3);
  values[7] = 1e38f;
  values[9] = infinity;
  std::vector<Half> wire(values.size()), expected(values.size());
  std::uint64_t non_finite = 100;
  kernels.encode({}, {.format = format,
                      .values = values.data(),
                      .elements = values.size(),
                      .wire = bytes_of(wire),
                      .non_finite = &non_finite});
  const std::size_t lost = gw::convert(std::span<const float>(values), std::span<Half>(expected));
  CHECK(wire == expected);
  CHECK(non_finite == 100 + lost);

  // Three pieces of 333.
  std::vector<float> sum(333), reference(333);
  kernels.sum({}, {.format = format,
                   .pieces = 3,
                   .wire = bytes_of(wire),
                   .wire_stride_bytes = 333 * sizeof(Half),
                   .elements = 333,
                   .divisor = 3,
                   .sum = sum.data()});
  std::vector<Half> summed(333), combined(333);
  gw::convert(std::span<const float>(sum), std::span<Half>(summed));
  const std::byte* const sources[] = {bytes_of(wire), bytes_of(wire) + 666, bytes_of(wire) + 1332};
  std::byte* const target = bytes_of(combined);
  gw::combine({.divisor = 3}, gw::element_kind_of<Half>, sources, {&target, 1}, 333);
  CHECK(summed == combined);
}

TEST_CASE_TEMPLATE("host_kernels: float8 keeps its bound within each block, and error feedback loses nothing", Float8,
                   gw::float8_e4m3, gw::float8_e5m2) {
  constexpr bool e4m3 = std::is_same_v<Float8, gw::float8_e4m3>;
  constexpr auto format = e4m3 ? gw::wire_format::float8_e4m3 : gw::wire_format::float8_e5m2;
  std::vector<float> values = random_floats(1000, 4);
  for (std::size_t i = 128; i < 256; ++i) {
    values[i] *= 1e-30f;  // each block has a scale of its own
  }
  values[300] = -infinity;
  values[301] = std::nanf("");
  const std::vector<float> old_residual = random_floats(values.size(), 5);
  for (const bool feeds_back : {false, true}) {
    std::vector<float> residual = old_residual, decoded(values.size());
    std::vector<Float8> wire(values.size());
    std::vector<std::int32_t> exponents(gw::float8_blocks(values.size()));
    std::uint64_t non_finite = 0;
    kernels.encode({}, {.format = format,
                        .values = values.data(),
                        .residual = feeds_back ? residual.data() : nullptr,
                        .elements = values.size(),
                        .wire = bytes_of(wire),
                        .exponents = exponents.data(),
                        .non_finite = &non_finite});
    kernels.sum({}, {.format = format,
                     .pieces = 1,
                     .wire = bytes_of(wire),
                     .exponents = exponents.data(),
                     .elements = values.size(),
                     .sum = decoded.data()});
    CHECK(non_finite == 2);
    CHECK((e4m3 ? std::isnan(decoded[300]) : decoded[300] == -infinity));
    CHECK(std::isnan(decoded[301]));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i == 300 || i == 301) {
        REQUIRE((!feeds_back || residual[i] == 0.0f));
        continue;
      }
      const float encoded = feeds_back ? values[i] + old_residual[i] : values[i];
      float greatest = 0;
      for (std::size_t j = i / 128 * 128; j < std::min(values.size(), i / 128 * 128 + 128); ++j) {
        const float other = feeds_back ? values[j] + old_residual[j] : values[j];
        greatest = std::max(greatest, std::isfinite(other) ? std::abs(other) : 0.0f);
      }
      // Half a unit of the value, or of the smallest number, which is the largest times 2^-17.8 or 2^-31.8.
      const float bound =
          std::max(std::abs(encoded) * (e4m3 ? 0x1p-4f : 0x1p-3f), greatest * (e4m3 ? 0x1p-17f : 0x1p-31f));
      REQUIRE(std::abs(decoded[i] - encoded) <= bound);
      if (feeds_back) {
        REQUIRE(decoded[i] + residual[i] == encoded);
      }
    }
  }
}
