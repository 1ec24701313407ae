#include <gradweave/backend/mpi/control.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/mpi.hpp"

using namespace gradweave;
using namespace gradweave::backend;

TEST_CASE("mpi control: a failure of one rank is settled on all; who leaves is known, and silence comes in the end") {
  const testing::watchdog guard("control over mpi");
  const int rank = tests::mpi_world::instance().rank();
  const int size = tests::mpi_world::instance().size();
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  mpi::control ear(copy, rank, size);
  const auto listen_until = [&](auto&& condition) {
    while (!condition()) {
      ear.listen(std::chrono::steady_clock::now());
      std::this_thread::yield();
    }
  };
  CHECK_FALSE(ear.has_failed());
  CHECK_FALSE(ear.left_before(1));
  if (rank == size - 1) {
    ear.begin({errc::aborted, rank, 4, -1, {}, "the reason"}, std::chrono::steady_clock::now());
  }
  listen_until([&] { return ear.is_settled(); });
  CHECK(ear.cause().detail == "the reason");
  CHECK(ear.cause().rank == size - 1);
  ear.leave(static_cast<std::uint64_t>(rank) + 5);
  listen_until([&] { return ear.is_silent(); });
  CHECK_FALSE(ear.left_before(rank == 0 ? 6 : 5));
  if (size > 1) {
    CHECK(ear.left_before(100) == (rank == 0 ? 1 : 0));
  }
  MPI_Comm_free(&copy);
}
