#include <gradweave/collective/select.hpp>

#include <doctest/doctest.h>

#include <gradweave/collective/proof.hpp>

#include "tests/support/schedules.hpp"

using namespace gradweave;

TEST_CASE("schedule_selector: what it selects for each operation is proved") {
  constexpr int size = 5;
  std::vector<float> values(1000);
  const extent whole{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
  const std::vector<std::size_t> pieces{0, 100, 100, 350, 999, 1000};
  const auto rows = tests::for_all(size, pieces);
  const auto select = [&](collective_request request) {
    request.kind = element_kind::float32;
    return tests::schedules_of_all(size, [&](schedule_world world, schedule& out) {
      schedule_selector selector;
      out = selector.select(world, request);
    });
  };
  const auto check = [&](const collective_request& request, const collective_claim& claim) {
    const proof result = prove(select(request), claim);
    CHECK_MESSAGE(result.holds(), result.fault);
  };
  const std::span<const extent> data(&whole, 1);
  check({.operation = collective::all_reduce, .data = data}, {.operation = collective::all_reduce, .elements = 1000});
  check({.operation = collective::reduce_scatter, .data = data, .pieces = pieces},
        {.operation = collective::reduce_scatter, .pieces = rows});
  check({.operation = collective::all_gather, .data = data, .pieces = pieces},
        {.operation = collective::all_gather, .pieces = rows});
  check({.operation = collective::broadcast, .root = 3, .data = data},
        {.operation = collective::broadcast, .root = 3, .elements = 1000});
  check({.operation = collective::barrier}, {.operation = collective::barrier});
  const std::vector<std::size_t> even{0, 200, 400, 600, 800, 1000};
  check({.operation = collective::all_to_all, .data = data, .pieces = even, .source = data, .source_pieces = even},
        {.operation = collective::all_to_all,
         .pieces = tests::for_all(size, even),
         .source_pieces = tests::for_all(size, even)});
}

TEST_CASE("schedule_selector: it says what it would choose, and the sizes at which that changes") {
  const schedule_selector messages;
  const auto check = [](const schedule_selector& selector, int ranks, const std::string& text) {
    CHECK(selector.choices({0, ranks}) == text);
  };
  check(messages, 8, "recursive_doubling to 64 KiB, halving_doubling to 2 MiB, ring above");
  check(messages, 6, "recursive_doubling to 64 KiB, ring above");
  CHECK(messages.choose({0, 8}, std::size_t{2} << 20) == all_reduce_algorithm::halving_doubling);
  CHECK(messages.choose({0, 8}, (std::size_t{2} << 20) + 1) == all_reduce_algorithm::ring);
  check(schedule_selector(rank_groups(std::vector{0, 0})), 2, "shared");
  check(schedule_selector(rank_groups(std::vector{0, 0, 1})), 3, "hierarchical");
  check(schedule_selector({}, all_reduce_algorithm::direct), 3, "direct");
}
