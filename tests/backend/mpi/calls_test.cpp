#include <gradweave/backend/mpi/calls.hpp>

#include <string>

#include <doctest/doctest.h>

#include "tests/support/mpi.hpp"

using namespace gradweave;
using namespace gradweave::backend;

namespace {

std::string complaint(int provided, bool only_caller) {
  try {
    mpi::require_thread_level(provided, only_caller);
  } catch (const contract_violation& violation) {
    return violation.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("mpi calls: an error is thrown with the call and MPI's words") {
  tests::mpi_world::instance();
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  std::string told;
  try {
    int element = 0;
    mpi::check(MPI_Bcast(&element, 1, MPI_INT, 1000, copy), "MPI_Bcast");
  } catch (const sync_error& error) {
    CHECK(error.code() == errc::internal);
    told = error.what();
  }
  CHECK_MESSAGE(told.starts_with("MPI_Bcast: "), told);
  CHECK_MESSAGE(told.find("root") != std::string::npos, told);
  CHECK_NOTHROW(mpi::check(MPI_SUCCESS, "MPI_Bcast"));
  MPI_Comm_free(&copy);
}

TEST_CASE("mpi calls: a thread level that does not do is named, and what to pass instead") {
  CHECK(complaint(MPI_THREAD_MULTIPLE, false) == "none");
  CHECK(complaint(MPI_THREAD_SERIALIZED, true) == "none");
  CHECK(complaint(MPI_THREAD_SERIALIZED, false).find("MPI_THREAD_SERIALIZED, but a lane calls it") !=
        std::string::npos);
  CHECK(complaint(MPI_THREAD_FUNNELED, false).find("pass MPI_THREAD_MULTIPLE to MPI_Init_thread") != std::string::npos);
  CHECK(complaint(MPI_THREAD_SINGLE, true).find("pass MPI_THREAD_SERIALIZED or more") != std::string::npos);
}

TEST_CASE("mpi calls: MPI adds 32 and 64 bits, and nothing shorter") {
  for (int kind = 0; kind < 32; ++kind) {
    const auto each = static_cast<element_kind>(kind);
    if (const auto type = mpi::added_by_mpi(each)) {
      int bytes = 0;
      MPI_Type_size(*type, &bytes);
      CHECK(bytes == static_cast<int>(element_bytes(each)));
      CHECK(bytes >= 4);
    }
  }
  CHECK(mpi::added_by_mpi(element_kind::float64) == MPI_DOUBLE);
  CHECK_FALSE(mpi::added_by_mpi(element_kind::bfloat16));
  CHECK(mpi::library_name().find('\n') == std::string::npos);
}
