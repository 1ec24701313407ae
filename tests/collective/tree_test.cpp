#include <gradweave/collective/tree.hpp>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("binomial_broadcast: is proved from every root, and sends the buffer N - 1 times") {
  for (const int size : proved_sizes()) {
    for (const int root : {0, size / 3, size - 1}) {
      for (const std::size_t count : {0U, 1U, 1000U}) {
        CAPTURE(size);
        CAPTURE(root);
        const proof result =
            check_proof(size, {.operation = collective::broadcast, .root = root, .elements = count},
                        [&](schedule_world world, schedule& out) { binomial_broadcast(world, root, count, out); });
        CHECK(result.messages_sent == (count == 0 ? 0 : static_cast<std::size_t>(size - 1)));
      }
    }
  }
}
