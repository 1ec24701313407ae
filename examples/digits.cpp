/// @file
/// Trains a small multilayer perceptron on handwritten digits. The ranks are threads of this process. Try
/// `digits --help`; what a rank does is in digits_training.hpp.

#include <stdlib.h>  // unsetenv
#include <unistd.h>  // isatty

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

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

void print_plan(const digits::command_line& command, const digits::split_images& images) {
  const digits::training_options& options = command.training;
  const digits::work_division division(images.training.size(), options.global_batch, command.ranks);
  const std::size_t batch = division.shard * static_cast<std::size_t>(command.ranks);
  std::printf("ranks            %d, threads of this process; compression %s, overlap %s, bucketing %s\n", command.ranks,
              name_of(options.compression).c_str(), name_of(options.overlap).c_str(),
              name_of(options.bucketing).c_str());
  std::printf("epochs           %zu, of %zu steps each; a step takes %zu images, %zu a rank\n", options.epochs,
              division.steps_per_epoch, batch, division.shard);
  std::printf("                 (%zu of %zu images do not fill a step and are left out, others in each epoch)\n",
              images.training.size() - batch * division.steps_per_epoch, images.training.size());
  std::fflush(stdout);
}

void print_summary(std::span<digits::training_result> ranks, const digits::image_set& held_out) {
  const auto steps = static_cast<double>(ranks.front().losses.size());
  double communication = 0;  // of a rank, in nanoseconds
  double exposed = 0;
  double bytes_raw = 0;  // of all ranks
  double bytes_on_wire = 0;
  for (const digits::training_result& rank : ranks) {
    const gw::sync_statistics& done = rank.statistics;
    communication += static_cast<double>(done.communication_time.count()) / static_cast<double>(ranks.size());
    exposed += static_cast<double>(done.exposed_time.count()) / static_cast<double>(ranks.size());
    bytes_raw += static_cast<double>(done.bytes_raw);
    bytes_on_wire += static_cast<double>(done.bytes_on_wire);
  }
  std::printf("\ntest accuracy    %.1f %% of %zu held-out images\n",
              100 * ranks.front().model.accuracy(held_out.pixel_values, held_out.labels), held_out.size());
  std::printf("time a step      %.3f ms\n", static_cast<double>(ranks.front().time.count()) / 1e6 / steps);
  if (ranks.size() == 1) {
    std::printf("communication    none: there is one rank\n");
    return;
  }
  std::printf("communication    %.3f ms a step, %.0f %% of it exposed: not hidden behind the backward pass\n",
              communication / 1e6 / steps, 100 * exposed / communication);
  std::printf("bytes a step     %.1f KiB raw, %.1f KiB on the wire (%.2f times as many), all ranks together\n",
              bytes_raw / 1024 / steps, bytes_on_wire / 1024 / steps, bytes_on_wire / bytes_raw);
  if (ranks.front().skipped != 0) {
    std::printf("skipped          %zu steps, in which a gradient was too large for its format\n",
                ranks.front().skipped);
  }
}

void run(const digits::command_line& command, const char* program) {
  const digits::image_set images = digits::load_images(digits::find_data(command.data, program));
  const digits::split_images parts = digits::hold_out_a_fifth(images, command.training.seed);
  print_plan(command, parts);

  // [run]
  progress_display display;
  std::vector<std::optional<digits::training_result>> results(static_cast<std::size_t>(command.ranks));
  gw::backend::run_loopback(command.ranks, [&](gw::backend::loopback backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    const auto observe = [&](const digits::progress& now) {
      if (rank == 0) {
        display.show(now);
      }
    };
    results[rank] = digits::train(std::move(backend), parts.training, command.training, observe);
  });
  // [/run]

  std::vector<digits::training_result> ranks;
  for (auto& result : results) {
    ranks.push_back(std::move(*result));
  }
  print_summary(ranks, parts.held_out);
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const digits::command_line command = digits::parse_command_line(count, arguments);
    if (command.help) {
      std::cout << *command.help;
      return 0;
    }
    // It has been heeded. Left there it would win over --bucket-mib when a synchronizer is made.
    unsetenv("DISTRIBUTED_BUCKET_SIZE");
    run(command, arguments[0]);
    return 0;
  } catch (const digits::usage_error& wrong) {
    std::cerr << "digits: " << wrong.what() << '\n';
    return 2;
  } catch (const std::exception& fault) {
    std::cerr << "digits: " << fault.what() << '\n';
    return 1;
  }
}
