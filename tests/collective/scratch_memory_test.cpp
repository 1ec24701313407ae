#include <gradweave/collective/scratch_memory.hpp>

#include <array>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("scratch_memory: is what is lent where that is enough, and its own otherwise, which stays") {
  scratch_memory scratch;
  std::array<std::byte, 8> lent{};
  CHECK(scratch.at_least(8, lent).memory == lent.data());
  CHECK(scratch.at_least(0, {}).bytes == 0);
  const extent own = scratch.at_least(9, lent);
  CHECK(own.memory != lent.data());
  CHECK(own.bytes == 9);
  own.memory[8] = std::byte{1};
  CHECK(scratch.at_least(9, {}).memory == own.memory);
  CHECK(scratch.at_least(5, {}).bytes == 9);
  CHECK(scratch.at_least(5, lent).bytes == 8);
}
