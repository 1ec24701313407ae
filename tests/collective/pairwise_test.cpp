#include <gradweave/collective/pairwise.hpp>

#include <doctest/doctest.h>

#include <gradweave/collective/proof.hpp>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("pairwise_all_to_all: is proved where every pair exchanges another length, and sends nothing twice") {
  for (const int size : proved_sizes()) {
    for (const std::size_t scale : {0U, 1U, 5U}) {
      const auto length = [&](int from, int to) { return static_cast<std::size_t>((from * 3 + to * 5) % 7) * scale; };
      collective_claim claim{.operation = collective::all_to_all};
      std::size_t travelling = 0;
      for (int rank = 0; rank < size; ++rank) {
        auto& in = claim.pieces.emplace_back(1, 0);
        auto& out = claim.source_pieces.emplace_back(1, 0);
        for (int peer = 0; peer < size; ++peer) {
          in.push_back(in.back() + length(peer, rank));
          out.push_back(out.back() + length(rank, peer));
          travelling += peer == rank ? 0 : length(rank, peer);
        }
      }
      const auto ranks = schedules_of_all(size, [&](schedule_world world, schedule& out) {
        const auto r = static_cast<std::size_t>(world.rank);
        pairwise_all_to_all(world, claim.source_pieces[r], claim.pieces[r], out);
      });
      const proof result = prove(ranks, claim);
      CAPTURE(size);
      CAPTURE(scale);
      CHECK_MESSAGE(result.holds(), result.fault);
      CHECK(result.elements_sent == travelling);
    }
  }
}
