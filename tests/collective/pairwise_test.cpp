#include <gradweave/collective/pairwise.hpp>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("pairwise_all_to_all: is proved where every pair exchanges another length, and sends nothing twice") {
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto cut = all_to_all_cuts(size, scale);
      CAPTURE(size);
      CAPTURE(scale);
      const proof result = check_proof(
          size, {.operation = collective::all_to_all, .pieces = cut.pieces, .source_pieces = cut.source_pieces},
          [&](schedule_world world, schedule& out) {
            const auto r = static_cast<std::size_t>(world.rank);
            pairwise_all_to_all(world, cut.source_pieces[r], cut.pieces[r], out);
          });
      CHECK(result.elements_sent == cut.moved);
    }
  }
}

TEST_CASE("pairwise_gather: is proved for uneven pieces, and sends each piece once") {
  for (const int size : proved_sizes()) {
    for (const int root : {0, size / 2}) {
      const auto pieces = uneven_pieces(size, 3);
      CAPTURE(size);
      CAPTURE(root);
      const proof result =
          check_proof(size, {.operation = collective::gather, .root = root, .pieces = for_all(size, pieces)},
                      [&](schedule_world world, schedule& out) { pairwise_gather(world, root, pieces, out); });
      CHECK(result.elements_sent == pieces.back() - piece_of(pieces, root).count);
    }
  }
}
