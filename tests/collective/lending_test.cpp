#include <gradweave/collective/lending.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

namespace {
constexpr operand lower{operand_buffer::data, 4, 8};
}  // namespace

TEST_CASE("lending: what is borrowed lies where it was lent from") {
  std::vector<schedule> ranks(2);
  ranks[0].lend_to_read(1, lower);
  ranks[1].copy({operand_buffer::data, 2, 6, 0}, {operand_buffer::scratch, 0, 6});
  const lending loans(ranks);
  CHECK(loans.fault() == "");
  CHECK(loans.elements() == 8);
  const auto [owner, place] = loans.place_of(1, {operand_buffer::data, 2, 6, 0});
  CHECK(owner == 0);
  CHECK(place == operand{operand_buffer::data, 6, 6});
}

TEST_CASE("lending: what nobody lends, or lends for reading only, may not be touched or written") {
  std::vector<schedule> ranks(2);
  ranks[1].copy({operand_buffer::data, 0, 8, 0}, lower);
  CHECK(lending(ranks).fault() == "rank 1 reads what rank 0 does not lend it for that");
  ranks[1].clear();
  ranks[0].lend_to_read(1, lower);
  ranks[1].copy(lower, {operand_buffer::data, 0, 8, 0});
  CHECK(lending(ranks).fault() == "rank 1 writes what rank 0 does not lend it for that");
}

TEST_CASE("lending: both sides mean the same length, and there is one loan a pair") {
  std::vector<schedule> ranks(2);
  ranks[0].lend_to_read(1, lower);
  CHECK(lending(ranks).fault() == "rank 0 lends 8 elements of which rank 1 uses 0");
  ranks[1].copy({operand_buffer::data, 0, 9, 0}, {operand_buffer::data, 0, 9});
  CHECK(lending(ranks).fault() == "rank 0 lends 8 elements of which rank 1 uses 9");
  ranks[0].lend_to_write(1, lower);
  CHECK(lending(ranks).fault() == "rank 0 lends twice to rank 1");
}
