#include <gradweave/config.hpp>

#include <doctest/doctest.h>

static_assert(GRADWEAVE_X86_64 + GRADWEAVE_AARCH64 <= 1);
static_assert(GRADWEAVE_FAST_MATH == 0 || GRADWEAVE_FAST_MATH == 1);

namespace {

#if GRADWEAVE_X86_64
GRADWEAVE_TARGET("avx2")
#endif
GRADWEAVE_ALWAYS_INLINE int one() { return 1; }

#if GRADWEAVE_X86_64
GRADWEAVE_TARGET("avx2")
#endif
int one_more() { return one() + 1; }

}  // namespace

TEST_CASE("config: a function takes a target of its own") {
#if GRADWEAVE_X86_64
  if (!__builtin_cpu_supports("avx2")) {
    return;
  }
#endif
  CHECK(one_more() == 2);
}
