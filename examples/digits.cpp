/// @file
/// Trains a small multilayer perceptron on handwritten digits. It starts its ranks itself, as processes that talk over
/// TCP or as threads, or is a rank of a job that torchrun, mpirun or Slurm started, over TCP or MPI. Try `digits --help`; what a rank
/// does is in digits_training.hpp.

#include <stdlib.h>  // unsetenv

#include <cstddef>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <utility>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/launch.hpp>

#include "examples/digits_data.hpp"
#include "examples/digits_options.hpp"
#include "examples/digits_rank.hpp"
#include "examples/digits_training.hpp"

namespace {

namespace gw = gradweave;

int run(const digits::command_line& command, std::span<char* const> arguments) {
  const digits::image_set all_images = digits::load_images(digits::find_data(command.data, arguments[0]));
  const digits::split_images images = digits::hold_out_a_fifth(all_images, command.training.seed);
  // [run]
  if (command.backend == digits::backend_choice::tcp && !gw::is_launched()) {  // what a person called, and no rank
    return gw::launch(arguments, {.ranks = command.ranks, .name_ranks = false});
  }
  // It has been heeded. Left there it would win over --bucket-mib when a synchronizer is made.
  unsetenv("DISTRIBUTED_BUCKET_SIZE");
  if (command.backend == digits::backend_choice::tcp) {
    digits::run_rank(gw::backend::tcp::from_environment(), "processes", command.training, images);
  } else if (command.backend == digits::backend_choice::mpi) {
    digits::run_over_mpi(command, images);
  } else {
    gw::backend::run_loopback(command.ranks, [&](gw::backend::loopback backend) {
      digits::run_rank(std::move(backend), "threads of this process", command.training, images);
    });
  }
  // [/run]
  return 0;
}

/// "digits", and which rank says it where others may say the same.
std::string name_of_speaker() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK"}) {
    if (const auto rank = gw::environment_variable(name)) {
      return "digits, rank " + *rank;
    }
  }
  return "digits";
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const digits::command_line command = digits::parse_command_line(count, arguments);
    if (command.help) {
      std::cout << *command.help;
      return 0;
    }
    return run(command, {arguments, static_cast<std::size_t>(count)});
  } catch (const digits::usage_error& wrong) {
    std::cerr << "digits: " << wrong.what() << '\n';
    return 2;
  } catch (const std::exception& fault) {
    std::cerr << name_of_speaker() + ": " + fault.what() + "\n";
    return 1;
  }
}
