/// @file
/// Trains a small multilayer perceptron on handwritten digits. It starts its ranks itself, as processes that talk over
/// TCP or as threads, or is a rank of a job that torchrun, mpirun or Slurm started. Try `digits --help`; what a rank
/// does is in digits_training.hpp.

#include <stdlib.h>  // unsetenv
#include <unistd.h>  // isatty

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/launch.hpp>

#include "examples/digits_data.hpp"
#include "examples/digits_options.hpp"
#include "examples/digits_training.hpp"

namespace {

namespace gw = gradweave;

/// Shows how far the training is: a bar where a person watches, else a line an epoch.
class progress_display {
 public:
  void show(const digits::progress& now) {
    epoch_loss_ += now.loss;
    const bool epoch_ends = now.step + 1 == now.steps_per_epoch;
    const double mean_loss = epoch_loss_ / static_cast<double>(now.step + 1);
    if (!watched_ && epoch_ends) {
      std::fprintf(stderr, "epoch %zu of %zu: loss %.4f\n", now.epoch + 1, now.epochs, mean_loss);
    }
    const bool all_ends = epoch_ends && now.epoch + 1 == now.epochs;
    if (const auto present = clock::now(); watched_ && (all_ends || present - drawn_ > std::chrono::milliseconds(50))) {
      drawn_ = present;
      draw(now, mean_loss, all_ends);
    }
    epoch_loss_ = epoch_ends ? 0 : epoch_loss_;
  }

 private:
  using clock = std::chrono::steady_clock;

  static void draw(const digits::progress& now, double mean_loss, bool all_ends) {
    constexpr std::size_t width = 40;
    const std::size_t done = now.epoch * now.steps_per_epoch + now.step + 1;
    const std::size_t filled = width * done / (now.epochs * now.steps_per_epoch);
    std::fprintf(stderr, "\r[%s%s] epoch %zu of %zu, loss %.4f ", std::string(filled, '#').c_str(),
                 std::string(width - filled, '.').c_str(), now.epoch + 1, now.epochs, mean_loss);
    std::fputs(all_ends ? "\n" : "", stderr);
  }

  bool watched_ = isatty(STDERR_FILENO) != 0;
  double epoch_loss_ = 0;
  clock::time_point drawn_{};
};

/// A policy's name, the first thing that it says of itself.
template <class Policy>
std::string name_of(const Policy& policy) {
  gw::description said;
  policy.describe(said);
  return said.entries().front().value;
}

void print_plan(const digits::training_options& options, int ranks, const char* what_ranks_are,
                const digits::split_images& images) {
  const digits::work_division division(images.training.size(), options.global_batch, ranks);
  const std::size_t batch = division.shard * static_cast<std::size_t>(ranks);
  std::printf("ranks            %d, %s; compression %s, overlap %s, bucketing %s\n", ranks, what_ranks_are,
              name_of(options.compression).c_str(), name_of(options.overlap).c_str(),
              name_of(options.bucketing).c_str());
  std::printf("epochs           %zu, of %zu steps each; a step takes %zu images, %zu a rank\n", options.epochs,
              division.steps_per_epoch, batch, division.shard);
  std::printf("                 (%zu of %zu images do not fill a step and are left out, others in each epoch)\n",
              images.training.size() - batch * division.steps_per_epoch, images.training.size());
  std::fflush(stdout);
}

/// `result` is rank 0's; the model is the same on all ranks.
void print_summary(digits::training_result result, int ranks, const digits::image_set& held_out) {
  const auto steps = static_cast<double>(result.losses.size());
  std::printf("\ntest accuracy    %.1f %% of %zu held-out images\n",
              100 * result.model.accuracy(held_out.pixel_values, held_out.labels), held_out.size());
  std::printf("time a step      %.3f ms\n", static_cast<double>(result.time.count()) / 1e6 / steps);
  if (ranks == 1) {
    std::printf("communication    none: there is one rank\n");
    return;
  }
  const gw::sync_statistics& done = result.statistics;
  const auto communication = static_cast<double>(done.communication_time.count());
  const auto exposed = static_cast<double>(done.exposed_time.count());
  const auto raw = static_cast<double>(done.bytes_raw);
  const auto on_wire = static_cast<double>(done.bytes_on_wire);
  std::printf("communication    %.3f ms a step; %.3f ms of a step are spent waiting for it\n",
              communication / 1e6 / steps, exposed / 1e6 / steps);
  std::printf("bytes a step     %.1f KiB raw, %.1f KiB on the wire (%.2f times as many), of rank 0\n",
              raw / 1024 / steps, on_wire / 1024 / steps, on_wire / raw);
  if (result.skipped != 0) {
    std::printf("skipped          %zu steps, in which a gradient was too large for its format\n", result.skipped);
  }
}

/// One rank, over any backend.
template <class Backend>
void run_rank(Backend backend, const char* what_ranks_are, const digits::training_options& options,
              const digits::split_images& images) {
  const int size = backend.size();
  if (backend.rank() != 0) {
    digits::train(std::move(backend), images.training, options);
    return;
  }
  print_plan(options, size, what_ranks_are, images);
  progress_display display;
  const auto show = [&](const digits::progress& now) { display.show(now); };
  print_summary(digits::train(std::move(backend), images.training, options, show), size, images.held_out);
}

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
    run_rank(gw::backend::tcp::from_environment(), "processes", command.training, images);
  } else {
    gw::backend::run_loopback(command.ranks, [&](gw::backend::loopback backend) {
      run_rank(std::move(backend), "threads of this process", command.training, images);
    });
  }
  // [/run]
  return 0;
}

/// "digits", and which rank says it where others may say the same.
std::string name_of_speaker() {
  for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"}) {
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
