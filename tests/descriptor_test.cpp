#include <gradweave/descriptor.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("descriptor: closes what it holds, once") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  {
    descriptor first(ends[0]);
    descriptor second(std::move(first));
    CHECK_FALSE(first);
    CHECK(second.number() == ends[0]);
    first = std::move(second);
    CHECK(first);
    CHECK(::fcntl(ends[0], F_GETFD) >= 0);
  }
  CHECK(::fcntl(ends[0], F_GETFD) < 0);
  descriptor other(ends[1]);
  other.close();
  CHECK(::fcntl(ends[1], F_GETFD) < 0);
  CHECK_FALSE(other);
}
