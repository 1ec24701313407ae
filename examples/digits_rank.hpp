/// @file
/// One rank of examples/digits over any backend, and what it prints.
#pragma once

#include <unistd.h>  // isatty

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

#include <gradweave/gradweave.hpp>

#include "examples/digits_data.hpp"
#include "examples/digits_options.hpp"
#include "examples/digits_training.hpp"

namespace digits {

/// Shows how far the training is: a bar where a person watches, else a line an epoch.
class progress_display {
 public:
  void show(const progress& now) {
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

  static void draw(const progress& now, double mean_loss, bool all_ends) {
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

inline void print_plan(const training_options& options, int ranks, const char* what_ranks_are,
                       const split_images& images) {
  const work_division division(images.training.size(), options.global_batch, ranks);
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
inline void print_summary(training_result result, int ranks, const image_set& held_out) {
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
void run_rank(Backend backend, const char* what_ranks_are, const training_options& options,
              const split_images& images) {
  const int size = backend.size();
  if (backend.rank() != 0) {
    train(std::move(backend), images.training, options);
    return;
  }
  print_plan(options, size, what_ranks_are, images);
  progress_display display;
  const auto show = [&](const progress& now) { display.show(now); };
  print_summary(train(std::move(backend), images.training, options, show), size, images.held_out);
}

/// A rank of an MPI job. Apart from the rest, since digits is also built where there is no MPI; there it throws usage_error.
void run_over_mpi(const command_line& command, const split_images& images);

}  // namespace digits
