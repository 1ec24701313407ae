#include <gradweave/device/checks.hpp>

#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;

TEST_CASE("checked_extents: drops what is empty and refuses gaps and cut elements") {
  alignas(8) std::array<std::byte, 64> memory{};
  std::byte* const at = memory.data();
  using list = std::vector<gw::extent>;
  const auto checked = [](const list& extents) {
    return gw::detail::checked_extents(extents, gw::element_kind::float32);
  };
  CHECK(checked({}).empty());
  CHECK(checked({{at, 8, 0}, {nullptr, 0, 8}, {at + 12, 4, 8}}) == list{{at, 8, 0}, {at + 12, 4, 8}});
  CHECK_THROWS_WITH_AS(checked({{at, 8, 0}, {at + 12, 4, 12}}), doctest::Contains("without gaps"),
                       gw::contract_violation);
  CHECK_THROWS_WITH_AS(checked({{at, 6, 0}}), doctest::Contains("between elements"), gw::contract_violation);
  CHECK_THROWS_WITH_AS(checked({{at + 2, 4, 0}}), doctest::Contains("between elements"), gw::contract_violation);
}

TEST_CASE("check: refuses requests that no kernel can carry out") {
  using gw::detail::check;
  CHECK_THROWS_AS(check(gw::scale_request{.kind = gw::element_kind::int32}), gw::contract_violation);
  CHECK_THROWS_AS(check(gw::scale_request{.kind = gw::element_kind{77}}), gw::contract_violation);
  CHECK_THROWS_AS(check(gw::encode_request{.format = gw::wire_format::float8_e4m3, .elements = 1}),
                  gw::contract_violation);
  CHECK_THROWS_AS(check(gw::sum_request{}), gw::contract_violation);
  CHECK_THROWS_AS(check(gw::sum_request{.pieces = 1, .divisor = 0}), gw::contract_violation);
  CHECK_THROWS_AS(check(gw::sum_request{.format = gw::wire_format::float8_e5m2, .pieces = 1, .elements = 1}),
                  gw::contract_violation);
  CHECK_NOTHROW(check(gw::sum_request{.format = gw::wire_format::float8_e5m2, .pieces = 1}));
  alignas(16) std::byte packed[32];
  CHECK_NOTHROW(gw::detail::check_packed(packed));
  CHECK_THROWS_AS(gw::detail::check_packed(packed + 8), gw::contract_violation);
}
