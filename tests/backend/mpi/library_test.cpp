#include <gradweave/backend/mpi/library.hpp>

#include <doctest/doctest.h>

#include "tests/support/mpi.hpp"

using namespace gradweave::backend;

TEST_CASE("mpi library: borrows MPI where the program has it, and asks what ends later until it has ended") {
  gradweave::tests::mpi_world::instance();
  int asked = 0;
  {
    mpi::library one(false);
    CHECK_FALSE(one.is_ours());
    one.end_later([&] { return ++asked == 2; });
    CHECK(asked == 0);
    one.end_later([] { return false; });
    CHECK(asked == 1);
    one.end_later([] { return true; });
    CHECK(asked == 2);
  }
  CHECK(asked == 2);
  CHECK(mpi::is_alive());
}
