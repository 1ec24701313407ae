#include <gradweave/compression/none.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

/// What a program asks for first, for 100 elements of a kind.
struct first_request {
  collective operation;
  std::size_t source_bytes;

  explicit first_request(element_kind kind) {
    std::vector<std::byte> memory(800);
    std::vector<std::byte> scratch(1 << 20);
    const extent whole{memory.data(), 100 * element_bytes(kind), 0};
    const bucket_member member{{0}, 0, 100};
    auto program = compression::none{}.prepare({kind, 100, {&member, 1}, {&whole, 1}}, {0, 2, 2});
    REQUIRE(program.scratch_bytes() <= scratch.size());
    const auto request = program.run(0, scratch);
    operation = request->operation;
    source_bytes = total_bytes(request->source);
  }
};

}  // namespace

TEST_CASE("none: 32 and 64 bits are all-reduced in place") {
  CHECK(first_request(element_kind::float32).operation == collective::all_reduce);
  CHECK(first_request(element_kind::float64).operation == collective::all_reduce);
}

TEST_CASE("none: 16 bits are reduced in two phases, with two bytes an element") {
  for (const element_kind kind : {element_kind::float16, element_kind::bfloat16}) {
    const first_request request(kind);
    CHECK(request.operation == collective::all_to_all);
    CHECK(request.source_bytes == 200);
  }
}
