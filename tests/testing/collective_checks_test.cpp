#include <gradweave/testing/collective_checks.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

TEST_CASE("collective_checks: the reference values are exact in every kind") {
  for (const gw::element_kind kind : gt::detail::all_kinds) {
    for (std::size_t i = 0; i < 11; ++i) {
      const double sum = gt::detail::reduced_value(kind, {gw::reduction_operation::sum, 1}, 4, i);
      CHECK((sum >= (gt::detail::is_signed(kind) ? -20 : 0) && sum <= 40));
      const double low = gt::detail::reduced_value(kind, {gw::reduction_operation::min, 1}, 4, i);
      const double high = gt::detail::reduced_value(kind, {gw::reduction_operation::max, 1}, 4, i);
      CHECK(4 * low <= sum);
      CHECK(sum <= 4 * high);
      CHECK(low < high);
    }
  }
  CHECK(gt::detail::reduced_value(gw::element_kind::int8, {gw::reduction_operation::sum, 3}, 1, 0) == -1);  // -5 / 3
}

TEST_CASE("collective_checks: pieces rise, differ, and some are empty") {
  for (std::size_t salt = 0; salt < 5; ++salt) {
    const std::vector<std::size_t> pieces = gt::detail::uneven_pieces(4, salt);
    REQUIRE(pieces.size() == 5);
    CHECK(pieces.front() == 0);
    CHECK(pieces[4] >= 41);
  }
}

TEST_CASE("payload_ledger: compares with the least that any algorithm sends") {
  constexpr std::uint64_t whole = 2 * gt::detail::payload_ledger::elements_a_rank * 4;
  gt::detail::payload_ledger ledger(2);
  ledger.add(gw::collective::all_reduce, whole);
  ledger.add(gw::collective::all_reduce, whole);
  gt::conformance_recorder right;
  ledger.check(right, 0);
  CHECK(right.report().passed());
  ledger.add(gw::collective::all_reduce, 4);
  gt::conformance_recorder wrong;
  ledger.check(wrong, 0);
  CHECK(gt::mentions(wrong.report(), "in all_reduce"));
  gt::conformance_recorder lenient;
  ledger.check(lenient, 0.5);
  CHECK(lenient.report().passed());
}
