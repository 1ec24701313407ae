#include <gradweave/collective/halving_doubling.hpp>

#include <bit>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("halving_doubling_all_reduce: is proved; sends as much as a ring of those that remain, in 2 log2 rounds") {
  for (const int size : proved_sizes()) {
    const std::size_t remaining = std::bit_floor(static_cast<unsigned>(size));
    const auto rounds = static_cast<std::size_t>(std::bit_width(remaining) - 1);
    const std::size_t surplus = static_cast<std::size_t>(size) - remaining;
    auto counts = proved_counts(size);
    counts.push_back(32 * remaining);  // no piece is empty
    for (const std::size_t count : counts) {
      std::vector<std::size_t> pieces;
      cut_evenly(count, static_cast<int>(remaining), pieces);
      CAPTURE(size);
      CAPTURE(count);
      const proof result =
          check_proof(size, {.operation = collective::all_reduce, .elements = count},
                      [&](schedule_world world, schedule& out) { halving_doubling_all_reduce(world, pieces, out); });
      CHECK(result.elements_sent == 2 * (remaining - 1) * count + 2 * surplus * count);
      CHECK(result.messages_sent <= 2 * rounds * remaining + 2 * surplus);
      if (count == 32 * remaining) {
        CHECK(result.messages_sent == 2 * rounds * remaining + 2 * surplus);
      }
    }
  }
}
