/// @file
/// The part of examples/digits that needs MPI.

#include <gradweave/backend/mpi.hpp>

#include "examples/digits_rank.hpp"

namespace digits {

void run_over_mpi(const command_line& command, const split_images& images) {
  // [run]
  run_rank(gw::backend::mpi::from_environment(), "processes of an MPI job", command.training, images);
  // [/run]
}

}  // namespace digits
