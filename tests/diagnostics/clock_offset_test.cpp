#include <gradweave/diagnostics/clock_offset.hpp>

#include <cstdint>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("clock_offset: is the median of what was seen, and none where there is one clock") {
  clock_offset offset;
  CHECK(offset.ns() == 0);
  offset.add(5'000'000'000);
  CHECK(offset.ns() == 5'000'000'000);
  offset.add(INT64_MAX);  // whatever rank 0 said
  offset.add(5'000'000'040);
  CHECK(offset.ns() == 5'000'000'040);
  for (int i = 0; i < 64; ++i) {  // the clocks have drifted: only the last ones count
    offset.add(-4'000'000'000 - i);
  }
  CHECK(offset.ns() < -4'000'000'000);
  for (int i = 0; i < 64; ++i) {
    offset.add(900'000);
  }
  CHECK(offset.ns() == 0);
}
