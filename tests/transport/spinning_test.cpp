#include <gradweave/transport/spinning.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("spin_until: ends when the condition holds, early or late, and some time without") {
  for (const int wanted : {1, 10, 80}) {  // at the first look, while it only looks, once it yields
    int looks = 0;
    const bool held = spin_until([&] { return ++looks >= wanted; });
    CHECK((held || looks > 64));  // it may have lost its core for long
    CHECK(looks <= wanted);
  }
  CHECK_FALSE(spin_until([] { return false; }));
}
