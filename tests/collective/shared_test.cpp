#include <gradweave/collective/shared.hpp>

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// Proves it, and that nothing is sent: `moved` elements are read from peers or written to them.
template <class Make>
void check(int size, const collective_claim& claim, std::size_t moved, Make&& make) {
  const auto members = all_members(size);
  CAPTURE(size);
  const proof result =
      check_proof(size, claim, [&](schedule_world world, schedule& out) { make(members, world.rank, out); });
  CHECK(result.elements_sent == 0);
  CHECK(result.elements_moved == moved);
}

}  // namespace

TEST_CASE("shared_schedules: the all-reduce is proved, and moves 2 (N-1) count elements in all") {
  shared_schedules make;
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t count : proved_counts(size)) {
      std::vector<std::size_t> pieces;
      cut_evenly(count, size, pieces);
      check(size, {.operation = collective::all_reduce, .elements = count},
            2 * static_cast<std::size_t>(size - 1) * count,
            [&](const auto& members, int rank, schedule& out) { make.all_reduce(members, rank, pieces, out); });
    }
  }
}

TEST_CASE("shared_schedules: reduce-scatter, all-gather and gather are proved for uneven pieces") {
  shared_schedules make;
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto pieces = uneven_pieces(size, scale);
      const std::size_t moved = static_cast<std::size_t>(size - 1) * pieces.back();
      check(size, {.operation = collective::reduce_scatter, .pieces = for_all(size, pieces)}, moved,
            [&](const auto& members, int rank, schedule& out) { make.reduce_scatter(members, rank, pieces, out); });
      check(size, {.operation = collective::all_gather, .pieces = for_all(size, pieces)}, moved,
            [&](const auto& members, int rank, schedule& out) { make.all_gather(members, rank, pieces, out); });
      const int root = size / 2;
      check(size, {.operation = collective::gather, .root = root, .pieces = for_all(size, pieces)},
            pieces.back() - piece_of(pieces, root).count, [&](const auto& members, int rank, schedule& out) {
              shared_schedules::gather(members, rank, root, pieces, out);
            });
    }
  }
}

TEST_CASE("shared_schedules: the all-to-all is proved where ranks cut differently") {
  shared_schedules make;
  for (const int size : proved_sizes_of_pairs()) {
    const auto cuts = all_to_all_cuts(size);
    check(size, {.operation = collective::all_to_all, .pieces = cuts.pieces, .source_pieces = cuts.source_pieces},
          cuts.moved, [&](const auto& members, int rank, schedule& out) {
            const auto r = static_cast<std::size_t>(rank);
            make.all_to_all(members, rank, cuts.source_pieces[r], cuts.pieces[r], out);
          });
  }
}

TEST_CASE("shared_schedules: broadcast and barrier are proved") {
  for (const int size : proved_sizes_of_pairs()) {
    for (const std::size_t count : {0U, 1000U}) {
      check(size, {.operation = collective::broadcast, .root = size - 1, .elements = count},
            static_cast<std::size_t>(size - 1) * count, [&](const auto& members, int rank, schedule& out) {
              shared_schedules::broadcast(members, rank, size - 1, count, out);
            });
    }
    check(size, {.operation = collective::barrier}, 0,
          [](const auto& members, int rank, schedule& out) { shared_schedules::barrier(members, rank, out); });
  }
}
