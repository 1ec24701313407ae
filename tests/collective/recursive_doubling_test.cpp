#include <gradweave/collective/recursive_doubling.hpp>

#include <bit>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("folded_world: every rank is one that remains or the neighbour of one") {
  for (int size = 1; size <= 40; ++size) {
    int remaining = 0;
    for (int rank = 0; rank < size; ++rank) {
      const folded_world folded({rank, size});
      if (!folded.is_folded_away()) {
        ++remaining;
        CHECK(folded.rank_at(folded.position()) == rank);
      } else {
        CHECK_FALSE(folded_world({folded.neighbour(), size}).is_folded_away());
      }
    }
    CHECK(std::has_single_bit(static_cast<unsigned>(remaining)));
    CHECK(2 * remaining > size);
  }
}

TEST_CASE("recursive_doubling_all_reduce: is proved; each remaining rank sends log2 times, each pair once each way") {
  for (const int size : proved_sizes()) {
    for (const std::size_t count : proved_counts(size)) {
      CAPTURE(size);
      CAPTURE(count);
      const proof result =
          check_proof(size, {.operation = collective::all_reduce, .elements = count},
                      [&](schedule_world world, schedule& out) { recursive_doubling_all_reduce(world, count, out); });
      const std::size_t remaining = std::bit_floor(static_cast<unsigned>(size));
      const auto rounds = static_cast<std::size_t>(std::bit_width(remaining) - 1);
      const std::size_t messages = remaining * rounds + 2 * (static_cast<std::size_t>(size) - remaining);
      CHECK(result.messages_sent == (count == 0 ? 0 : messages));
      CHECK(result.elements_sent == messages * count);
    }
  }
}
