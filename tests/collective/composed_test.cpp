#include <gradweave/collective/composed.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// Hosts of even and uneven size, and ranks dealt to two hosts in turn.
std::vector<std::vector<int>> placements(int size) {
  std::vector<std::vector<int>> all = {hosts_of(size, {3, 1, 2})};
  if (size <= 128) {
    all.insert(all.end(), {hosts_of(size, {1}), hosts_of(size, {8}), hosts_of(size, {4, 4, 5})});
    std::vector<int>& in_turn = all.emplace_back();
    for (int rank = 0; rank < size; ++rank) {
      in_turn.push_back(rank % 2);
    }
  }
  return all;
}

/// `check(groups, size)` for each world in which some ranks are on different hosts.
template <class Check>
void for_each_placement(const std::vector<int>& sizes, Check&& check) {
  for (const int size : sizes) {
    for (const std::vector<int>& host_of : placements(size)) {
      const rank_groups groups(host_of);
      CAPTURE(size);
      CAPTURE(groups.count());
      if (groups.count() > 1) {
        check(groups, size);
      }
    }
  }
}

}  // namespace

TEST_CASE("composed_schedules: all-gather and reduce-scatter are proved, and cross between hosts as seldom as can be") {
  composed_schedules make;
  for_each_placement(proved_sizes_of_pairs(), [&](const rank_groups& groups, int size) {
    for (const std::size_t scale : proved_scales(size)) {
      const auto pieces = uneven_pieces(size, scale);
      const proof gathered =
          check_proof(size, {.operation = collective::all_gather, .pieces = for_all(size, pieces)},
                      [&](schedule_world world, schedule& out) { make.all_gather(groups, world.rank, pieces, out); });
      CHECK(gathered.elements_sent == (groups.count() - 1) * pieces.back());
      const proof scattered = check_proof(
          size, {.operation = collective::reduce_scatter, .pieces = for_all(size, pieces)},
          [&](schedule_world world, schedule& out) { make.reduce_scatter(groups, world.rank, pieces, out); });
      CHECK(scattered.elements_sent == (groups.count() - 1) * pieces.back());
    }
  });
}

TEST_CASE("composed_schedules: broadcasts from any rank are proved, by a tree and by a chain") {
  composed_schedules make;
  for_each_placement(proved_sizes(), [&](const rank_groups& groups, int size) {
    for (const std::size_t count : {0U, 1U, 1000U}) {
      for (const int root : {0, size / 2, size - 1}) {
        const proof sent = check_proof(size, {.operation = collective::broadcast, .root = root, .elements = count},
                                       [&](schedule_world world, schedule& out) {
                                         make.broadcast(groups, world.rank, root, count, 100, 333, out);
                                       });
        CHECK(sent.elements_sent == (groups.count() - 1) * count);
      }
    }
  });
}

TEST_CASE("composed_schedules: gather, all-to-all and barrier are proved") {
  composed_schedules make;
  for_each_placement(proved_sizes_of_pairs(), [&](const rank_groups& groups, int size) {
    const auto pieces = uneven_pieces(size, 19);
    const int root = size / 2;
    const proof gathered =
        check_proof(size, {.operation = collective::gather, .root = root, .pieces = for_all(size, pieces)},
                    [&](schedule_world world, schedule& out) { make.gather(groups, world.rank, root, pieces, out); });
    std::size_t own = 0;
    for (const int member : groups.members(groups.group_of(root))) {
      own += piece_of(pieces, member).count;
    }
    CHECK(gathered.elements_sent == pieces.back() - own);
    const auto cuts = all_to_all_cuts(size);
    check_proof(size, {.operation = collective::all_to_all, .pieces = cuts.pieces, .source_pieces = cuts.source_pieces},
                [&](schedule_world world, schedule& out) {
                  const auto r = static_cast<std::size_t>(world.rank);
                  make.all_to_all(groups, world.rank, cuts.source_pieces[r], cuts.pieces[r], out);
                });
    check_proof(size, {.operation = collective::barrier},
                [&](schedule_world world, schedule& out) { make.barrier(groups, world.rank, out); });
  });
}
