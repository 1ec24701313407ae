#include <gradweave/collective/chain.hpp>

#include <doctest/doctest.h>

#include <gradweave/collective/proof.hpp>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("chain_broadcast: is proved from every root, and sends (N-1) count elements") {
  for (const int size : proved_sizes()) {
    for (const int root : {0, size / 2, size - 1}) {
      for (const std::size_t count : proved_counts(size)) {
        const auto ranks = schedules_of_all(
            size, [&](schedule_world world, schedule& out) { chain_broadcast(world, root, count, 300, out); });
        const proof result = prove(ranks, {.operation = collective::broadcast, .root = root, .elements = count});
        CAPTURE(size);
        CAPTURE(root);
        CAPTURE(count);
        CHECK_MESSAGE(result.holds(), result.fault);
        CHECK(result.elements_sent == static_cast<std::size_t>(size - 1) * count);
        CHECK(result.messages_sent == static_cast<std::size_t>(size - 1) * ((count + 299) / 300));
      }
    }
  }
}
