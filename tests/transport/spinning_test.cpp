#include <gradweave/transport/spinning.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("spinning: ends when the condition holds, and some time without") {
  for (const int ranks : {1, 1000}) {  // which leaves a core to each, and which does not
    const spinning patience(ranks);
    int looks = 0;
    CHECK(patience.until([&] { return ++looks == 10; }));
    CHECK(looks == 10);
    CHECK_FALSE(patience.until([] { return false; }));
  }
}
