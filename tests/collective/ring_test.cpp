#include <gradweave/collective/ring.hpp>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("ring_all_reduce: is proved, and sends 2 (N-1) count elements in all") {
  for (const int size : proved_sizes()) {
    for (const std::size_t count : proved_counts(size)) {
      std::vector<std::size_t> pieces;
      cut_evenly(count, size, pieces);
      CAPTURE(size);
      CAPTURE(count);
      const proof result =
          check_proof(size, {.operation = collective::all_reduce, .elements = count},
                      [&](schedule_world world, schedule& out) { ring_all_reduce(world, pieces, out); });
      CHECK(result.elements_sent == 2 * static_cast<std::size_t>(size - 1) * count);
    }
  }
}

TEST_CASE("ring_reduce_scatter: is proved for even and uneven pieces, and sends (N-1) count elements") {
  for (const int size : proved_sizes()) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto pieces = uneven_pieces(size, scale);
      CAPTURE(size);
      CAPTURE(scale);
      const proof result =
          check_proof(size, {.operation = collective::reduce_scatter, .pieces = for_all(size, pieces)},
                      [&](schedule_world world, schedule& out) { ring_reduce_scatter(world, pieces, out); });
      CHECK(result.elements_sent == static_cast<std::size_t>(size - 1) * pieces.back());
    }
  }
}

TEST_CASE("ring_all_gather: is proved for even and uneven pieces, and sends (N-1) count elements") {
  for (const int size : proved_sizes()) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto pieces = uneven_pieces(size, scale);
      CAPTURE(size);
      CAPTURE(scale);
      const proof result =
          check_proof(size, {.operation = collective::all_gather, .pieces = for_all(size, pieces)},
                      [&](schedule_world world, schedule& out) { ring_all_gather(world, pieces, out); });
      CHECK(result.elements_sent == static_cast<std::size_t>(size - 1) * pieces.back());
    }
  }
}
