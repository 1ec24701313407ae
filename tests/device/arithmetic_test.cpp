#include <gradweave/device/arithmetic.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
namespace detail = gradweave::detail;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

}  // namespace

TEST_CASE("canonical: makes NaNs one and leaves everything else") {
  CHECK(std::bit_cast<std::uint32_t>(detail::canonical(-not_a_number)) == 0x7fc0'0000u);
  CHECK(std::bit_cast<std::uint64_t>(detail::canonical(-std::numeric_limits<double>::quiet_NaN())) ==
        0x7ff8'0000'0000'0000u);
  CHECK(detail::canonical(-infinity) == -infinity);
  CHECK(std::signbit(detail::canonical(-0.0f)));
}

TEST_CASE("encode_element: the residual is what was lost, and nothing where all is lost") {
  const auto third = detail::encode_element<gw::wire_format::bfloat16>(1.0f / 3, 0);
  CHECK(gw::to_float32(third.value) + third.residual == 1.0f / 3);
  CHECK(!third.non_finite);
  for (const float lost : {70000.0f, infinity, not_a_number}) {
    const auto encoded = detail::encode_element<gw::wire_format::float16>(lost, 0);
    CHECK(encoded.non_finite);
    CHECK(encoded.residual == 0.0f);
  }
}

TEST_CASE("encode_element: a finite float8 that decodes to infinity counts as lost") {
  const float largest = std::numeric_limits<float>::max();
  const auto exponent = gw::float8_exponent<gw::float8_e4m3>(gw::finite_magnitude(largest));
  const auto encoded = detail::encode_element<gw::wire_format::float8_e4m3>(largest, exponent);
  CHECK(encoded.non_finite);
  CHECK(encoded.residual == 0.0f);
}

TEST_CASE("add_square: finite values only") {
  gw::scatter_summary summary;
  for (const float value : {3.0f, infinity, -4.0f, not_a_number}) {
    detail::add_square(summary, value);
  }
  CHECK(summary == gw::scatter_summary{25, 2});
  detail::add_square(summary, 0x1p600);
  detail::add_square(summary, gw::to_float16(infinity));
  CHECK(summary.squared_norm == std::numeric_limits<double>::infinity());
  CHECK(summary.non_finite == 3);
}

TEST_CASE("extent_at: finds each position's extent") {
  std::vector<gw::extent> extents;
  for (std::size_t i = 0; i < 7; ++i) {
    extents.push_back({nullptr, i + 1, gw::total_bytes(extents)});
  }
  for (std::size_t position = 0; position < gw::total_bytes(extents); ++position) {
    const std::size_t found = detail::extent_at(extents.data(), 0, extents.size(), position);
    REQUIRE(extents[found].offset <= position);
    REQUIRE(position < extents[found].offset + extents[found].bytes);
  }
}

TEST_CASE("visit_format, visit_floating: refuse what they don't know") {
  CHECK_THROWS_AS(detail::visit_format(gw::wire_format{2}, [](auto) {}), gw::contract_violation);
  CHECK_THROWS_AS(detail::visit_floating(gw::element_kind::int8, [](auto) {}), gw::contract_violation);
}
