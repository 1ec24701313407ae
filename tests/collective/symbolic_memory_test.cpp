#include <gradweave/collective/symbolic_memory.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

namespace {
symbolic_run run_of(int rank, std::size_t count) {
  return {count, std::make_shared<symbolic_value>(symbolic_value::of(rank, operand_buffer::data))};
}
}  // namespace

TEST_CASE("symbolic_memory: a write in the middle splits the run around it") {
  symbolic_memory memory;
  const symbolic_run old = run_of(0, 10);
  const symbolic_run fresh = run_of(1, 4);
  memory.write(0, {&old, 1});
  memory.write(3, {&fresh, 1});
  const auto runs = memory.read(0, 10);
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].count == 3);
  CHECK(runs[1].count == 4);
  CHECK(runs[2].count == 3);
  CHECK(runs[1].value->terms[0].first == 1);
  CHECK(runs[2].value->terms[0].first == 0);
}

TEST_CASE("symbolic_memory: what was never written reads as undefined") {
  symbolic_memory memory;
  const symbolic_run known = run_of(0, 2);
  memory.write(4, {&known, 1});
  const auto runs = memory.read(3, 4);
  REQUIRE(runs.size() == 3);
  CHECK(runs[0].value->undefined);
  CHECK_FALSE(runs[1].value->undefined);
  CHECK(runs[2].value->undefined);
}

TEST_CASE("combined: keeps a contribution that was added twice as two terms") {
  const std::vector<symbolic_run> a{run_of(0, 3), run_of(1, 3)};
  const std::vector<symbolic_run> b{run_of(0, 6)};
  const auto sums = combined(a, b);
  REQUIRE(sums.size() == 2);
  CHECK(sums[0].value->terms.size() == 2);
  CHECK(sums[0].value->terms[0] == sums[0].value->terms[1]);
  REQUIRE(sums[1].value->terms.size() == 1);
  CHECK(sums[1].value->terms[0].first == 0);
  CHECK(sums[1].value->terms[0].last == 2);
}

TEST_CASE("combined: contributions of neighbouring ranks become one term, in whichever order they come") {
  symbolic_value sum = symbolic_value::of(2, operand_buffer::data);
  for (const int rank : {0, 3, 1}) {
    sum = combined(sum, symbolic_value::of(rank, operand_buffer::data));
  }
  CHECK(sum == symbolic_value{{{operand_buffer::data, 0, 0, 4}}, 0, false});
  CHECK(combined(sum, symbolic_value::of(4, operand_buffer::data, 1)).terms.size() == 2);
}
