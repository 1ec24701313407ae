#include <gradweave/collective/dissemination.hpp>

#include <bit>

#include <doctest/doctest.h>

#include <gradweave/collective/proof.hpp>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("dissemination_barrier: nobody leaves before everybody has entered, in ceil(log2 N) rounds") {
  for (const int size : proved_sizes()) {
    const auto ranks = schedules_of_all(size, dissemination_barrier);
    const proof result = prove(ranks, {.operation = collective::barrier});
    CAPTURE(size);
    CHECK_MESSAGE(result.holds(), result.fault);
    const auto rounds = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(size - 1)));
    CHECK(result.messages_sent == static_cast<std::size_t>(size) * rounds);
  }
}
