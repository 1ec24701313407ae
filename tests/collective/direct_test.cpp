#include <gradweave/collective/direct.hpp>

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("direct_schedules: the all-reduce is proved, and sends 2 (N-1) count elements in all") {
  direct_schedules make;
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t count : proved_counts(size)) {
      std::vector<std::size_t> pieces;
      cut_evenly(count, size, pieces);
      CAPTURE(size);
      CAPTURE(count);
      const proof result =
          check_proof(size, {.operation = collective::all_reduce, .elements = count},
                      [&](schedule_world world, schedule& out) { make.all_reduce(world, pieces, out); });
      CHECK(result.elements_sent == 2 * static_cast<std::size_t>(size - 1) * count);
    }
  }
}

TEST_CASE("direct_schedules: the reduce-scatter is proved for uneven pieces, and sends (N-1) count elements") {
  direct_schedules make;
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto pieces = uneven_pieces(size, scale);
      CAPTURE(size);
      CAPTURE(scale);
      const proof result =
          check_proof(size, {.operation = collective::reduce_scatter, .pieces = for_all(size, pieces)},
                      [&](schedule_world world, schedule& out) { make.reduce_scatter(world, pieces, out); });
      CHECK(result.elements_sent == static_cast<std::size_t>(size - 1) * pieces.back());
    }
  }
}

TEST_CASE("direct_schedules: contributions are combined in rank order") {
  direct_schedules make;
  schedule plan;
  std::vector<std::size_t> pieces;
  cut_evenly(64, 4, pieces);
  make.all_reduce({2, 4}, pieces, plan);
  for (const schedule_step& step : plan.steps()) {
    if (step.kind == step_kind::reduce) {
      const auto sources = plan.sources(step);
      REQUIRE(sources.size() == 4);
      CHECK(sources[2] == piece_of(pieces, 2));
      CHECK(sources[1] == operand{operand_buffer::scratch, 0, 16});   // from the rank one behind
      CHECK(sources[0] == operand{operand_buffer::scratch, 16, 16});  // two behind
      CHECK(sources[3] == operand{operand_buffer::scratch, 32, 16});  // three behind
    }
  }
}
