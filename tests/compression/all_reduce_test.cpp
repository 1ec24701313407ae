#include <gradweave/compression/all_reduce.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("all_reduce_program: one request in the bucket's own kind, divided as the world says, and no scratch") {
  const extent memory{nullptr, 40, 0};
  compression::all_reduce_program program({element_kind::float64, 5, {}, {&memory, 1}}, {1, 3, 3});
  CHECK(program.scratch_bytes() == 0);
  const auto request = program.run(0, {});
  REQUIRE(request);
  CHECK(request->operation == collective::all_reduce);
  CHECK(request->kind == element_kind::float64);
  CHECK(request->reduce == reduction{reduction_operation::sum, 3});
  CHECK(request->data.data() == &memory);
  CHECK_FALSE(program.run(1, {}));
}

TEST_CASE("per_hop_rounding: compresses nothing") {
  CHECK_FALSE(compression::per_hop_rounding{}.compresses(element_kind::float16));
}
