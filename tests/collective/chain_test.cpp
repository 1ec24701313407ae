#include <gradweave/collective/chain.hpp>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("chain_broadcast: is proved from every root, and sends (N-1) count elements") {
  for (const int size : proved_sizes()) {
    for (const int root : {0, size / 2, size - 1}) {
      for (const std::size_t count : proved_counts(size)) {
        CAPTURE(size);
        CAPTURE(root);
        CAPTURE(count);
        const proof result =
            check_proof(size, {.operation = collective::broadcast, .root = root, .elements = count},
                        [&](schedule_world world, schedule& out) { chain_broadcast(world, root, count, 300, out); });
        CHECK(result.elements_sent == static_cast<std::size_t>(size - 1) * count);
        CHECK(result.messages_sent == static_cast<std::size_t>(size - 1) * ((count + 299) / 300));
      }
    }
  }
}
