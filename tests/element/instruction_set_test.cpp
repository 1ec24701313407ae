#include <gradweave/element/instruction_set.hpp>

#include <doctest/doctest.h>

using gradweave::detail::best_instruction_set;
using gradweave::detail::instruction_set;
using gradweave::detail::supported;

TEST_CASE("instruction_set: the portable path is always supported, and the best one is") {
  CHECK(supported(instruction_set::portable));
  CHECK(supported(best_instruction_set()));
}

TEST_CASE("instruction_set: the vector path belongs to its architecture") {
  CHECK(supported(instruction_set::neon) == (GRADWEAVE_AARCH64 == 1));
  CHECK((!supported(instruction_set::avx2) || GRADWEAVE_X86_64 == 1));
#if GRADWEAVE_AARCH64
  CHECK(best_instruction_set() == instruction_set::neon);
#endif
}
