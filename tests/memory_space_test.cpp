#include <gradweave/memory_space.hpp>

#include <doctest/doctest.h>

namespace gw = gradweave;

static_assert(static_cast<int>(gw::memory_space::host) == 1);
static_assert(static_cast<int>(gw::memory_space::cuda) == 2);
static_assert(gw::memory_space{} != gw::memory_space::host);

TEST_CASE("memory_space: has a name") {
  CHECK(gw::memory_space_name(gw::memory_space::host) == "host");
  CHECK(gw::memory_space_name(gw::memory_space::cuda) == "cuda");
  CHECK(gw::memory_space_name(gw::memory_space{7}) == "invalid");
}
