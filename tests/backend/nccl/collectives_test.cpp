#include <gradweave/backend/nccl/collectives.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/testing/collective_checks.hpp>

namespace gw = gradweave;
namespace gd = gradweave::detail;
using gw::collective;
using gw::element_kind;

namespace {

gd::nccl_launch launch_of(const gw::collective_request& request, int rank = 0, int size = 3) {
  return {request, rank, size, ncclSum, nullptr, nullptr};
}

}  // namespace

TEST_CASE("nccl collectives: each kind has NCCL's type of its width, but integers of 16 bits") {
  for (const element_kind kind : gw::testing::detail::all_kinds) {
    const bool has_none = kind == element_kind::int16 || kind == element_kind::uint16;
    CHECK(gd::nccl_type(kind).has_value() == !has_none);
  }
  CHECK(gd::nccl_operation(gw::reduction_operation::min) == ncclMin);
}

TEST_CASE("nccl collectives: what NCCL can't do is refused with a sentence") {
  const std::vector<std::size_t> even = {0, 2, 4, 6};
  const auto refused = [](const gw::collective_request& request, const char* words) {
    CHECK_THROWS_WITH_AS(launch_of(request).check(), doctest::Contains(words), gw::contract_violation);
  };
  refused({.operation = collective::all_reduce, .kind = element_kind::int16}, "16-bit integers");
  refused(
      {.operation = collective::reduce_scatter, .kind = element_kind::int32, .reduce = {.divisor = 3}, .pieces = even},
      "only floating");
  refused({.operation = collective::all_gather, .pieces = std::span(even).first(3)}, "a position a rank");
  refused({.operation = collective::all_to_all, .pieces = even, .source_pieces = std::span(even).first(2)},
          "a position a rank");
  refused({.operation = collective::broadcast, .root = 3}, "no such root");
  refused({.operation = collective::gather}, "does not offer");
}

TEST_CASE("nccl collectives: what two ranks exchange lies in one place") {
  std::vector<std::byte> memory(24);
  const std::array<gw::extent, 2> places = {{{memory.data(), 16, 0}, {memory.data() + 16, 8, 16}}};
  const gw::extent whole{memory.data(), 24, 0};
  const std::vector<std::size_t> at_the_cut = {0, 2, 4, 6}, across = {0, 3, 6, 6};
  gw::collective_request request{.operation = collective::all_to_all,
                                 .kind = element_kind::float32,
                                 .data = {&whole, 1},
                                 .pieces = across,
                                 .source = places,
                                 .source_pieces = at_the_cut};
  CHECK_NOTHROW(launch_of(request).check());
  request.source_pieces = across;
  CHECK_THROWS_WITH_AS(launch_of(request).check(), doctest::Contains("one extent on either side"),
                       gw::contract_violation);
}

TEST_CASE("nccl collectives: all ranks together send what rings send") {
  std::array<std::byte, 24> memory{};
  const gw::extent whole{memory.data(), memory.size(), 0};
  const std::vector<std::size_t> pieces = {0, 1, 3, 6};
  const auto sent_by_all = [&](collective operation) {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < 3; ++rank) {
      sum += gd::ring_bytes(launch_of({.operation = operation,
                                       .kind = element_kind::float32,
                                       .root = 1,
                                       .data = {&whole, 1},
                                       .pieces = pieces,
                                       .source = {&whole, 1},
                                       .source_pieces = pieces},
                                      rank));
    }
    return sum;
  };
  CHECK(sent_by_all(collective::all_reduce) == 2 * 2 * 24);
  CHECK(sent_by_all(collective::all_gather) == 2 * 24);
  CHECK(sent_by_all(collective::reduce_scatter) == 2 * 24);
  CHECK(sent_by_all(collective::broadcast) == 2 * 24);
  CHECK(sent_by_all(collective::all_to_all) == 2 * 24);
}
