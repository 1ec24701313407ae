#include <gradweave/collective/claim.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("content_after: an all-to-all moves a piece from where it stood in the sender's source") {
  const collective_claim claim{
      .operation = collective::all_to_all, .pieces = {{0, 1, 3}, {0, 2, 6}}, .source_pieces = {{0, 1, 3}, {0, 2, 6}}};
  const auto expected = content_after(claim, 1, 2);
  REQUIRE(expected.size() == 2);
  CHECK(expected[0].range == operand{operand_buffer::data, 0, 2});
  CHECK(expected[0].value == symbolic_value::of(0, operand_buffer::source, 1));
  CHECK(expected[1].value == symbolic_value::of(1, operand_buffer::source, 0));
}

TEST_CASE("content_after: of a gather only the root has all pieces") {
  const collective_claim claim{.operation = collective::gather, .root = 1, .pieces = {{0, 1, 3}, {0, 1, 3}}};
  CHECK(content_after(claim, 0, 2).size() == 1);
  CHECK(content_after(claim, 1, 2).size() == 2);
}

TEST_CASE("content_before: only the root of a broadcast has anything") {
  const collective_claim claim{.operation = collective::broadcast, .root = 1, .elements = 5};
  CHECK(content_before(claim, 0).empty());
  REQUIRE(content_before(claim, 1).size() == 1);
  CHECK(content_before(claim, 1)[0].range.count == 5);
}
