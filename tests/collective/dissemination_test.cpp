#include <gradweave/collective/dissemination.hpp>

#include <bit>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("dissemination_barrier: nobody leaves before everybody has entered, in ceil(log2 N) rounds") {
  for (const int size : proved_sizes()) {
    CAPTURE(size);
    const proof result = check_proof(size, {.operation = collective::barrier},
                                     [](schedule_world world, schedule& out) { dissemination_barrier(world, out); });
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
    CHECK(result.messages_sent == static_cast<std::size_t>(size) * rounds);
  }
}
