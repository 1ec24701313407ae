/// @file
/// What stands for digits_with_mpi.cpp in a program without MPI.

#include "examples/digits_rank.hpp"

namespace digits {

void run_over_mpi(const command_line&, const split_images&) {
  throw usage_error("--backend: this program was built without MPI; run digits_mpi, which is built where MPI is found");
}

}  // namespace digits
