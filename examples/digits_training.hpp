/// @file
/// What one rank of examples/digits does, over any backend.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

#include "examples/digits_data.hpp"
#include "examples/mlp.hpp"

namespace digits {

namespace gw = gradweave;

// [choices]
// Policies that the command line chooses. Each is a policy itself, so `train` is compiled once, not once a combination.
using compression_choice = gw::one_of<gw::compression::none, gw::compression::fp16, gw::compression::bf16>;
using overlap_choice = gw::one_of<gw::overlap::blocking, gw::overlap::progress_thread>;
using bucketing_choice = gw::one_of<gw::bucketing::per_tensor, gw::bucketing::fixed_bytes, gw::bucketing::ready_order>;
// [/choices]

struct training_options {
  std::size_t epochs = 15;
  std::size_t steps_max = SIZE_MAX;  ///< ends the training early
  std::uint64_t seed = 1;            ///< of the initial weights and of the order of the images
  std::size_t global_batch = 60;     ///< images a step, over all ranks
  std::vector<std::size_t> hidden = {48};
  descent how = {.learning_rate = 0.3f, .momentum = 0.9f};
  compression_choice compression = gw::compression::none{};
  overlap_choice overlap = gw::overlap::progress_thread{};
  bucketing_choice bucketing = gw::bucketing::ready_order{};
};

/// Who works on what. All ranks have shards of one size and the same number of steps: what a batch leaves when it is
/// divided by the ranks is dropped, and so are the images of an epoch that do not fill a batch. (They are others in
/// each epoch.)
struct work_division {
  std::size_t shard = 0;  ///< images a step and rank
  std::size_t steps_per_epoch = 0;

  work_division(std::size_t images, std::size_t global_batch, int ranks)
      : shard(global_batch / static_cast<std::size_t>(ranks)),
        steps_per_epoch(shard == 0 ? 0 : images / (shard * static_cast<std::size_t>(ranks))) {
    gw::require(steps_per_epoch > 0, "digits: there are too few images for a batch, or more ranks than images in it");
  }
};

/// How far the training is.
struct progress {
  std::size_t epoch = 0;  ///< counted from 0
  std::size_t epochs = 0;
  std::size_t step = 0;  ///< within the epoch, counted from 0
  std::size_t steps_per_epoch = 0;
  double loss = 0;  ///< of this rank's shard
};

/// What one rank brings home. The model is the same on all of them.
struct training_result {
  mlp model;
  std::vector<double> losses;  ///< of this rank's shard, a step each
  std::size_t skipped = 0;     ///< steps without an update, since a gradient was too large for fp16
  std::chrono::nanoseconds time{};
  gw::sync_statistics statistics;
};

/// Trains a model on this rank's shares of the images. Every rank has to call it with the same images and options. Calls
/// `observe` after each step. Throws gradweave::sync_error where another rank fails.
template <gw::host_backend Backend>
training_result train(Backend backend, const image_set& images, const training_options& options,
                      const std::function<void(const progress&)>& observe = {}) {
  // [register]
  // The initial weights differ from rank to rank: those of rank 0 reach the others when the manifest is sealed.
  std::vector<std::size_t> widths = {pixels, classes};
  widths.insert(widths.begin() + 1, options.hidden.begin(), options.hidden.end());
  mlp model(widths, options.seed + static_cast<std::uint64_t>(backend.rank()));

  gw::manifest gradients;
  std::vector<gw::slot> slots;
  for (parameter& each : model.parameters()) {
    slots.push_back(gradients.add(each.name, each.value, each.gradient));
  }
  // [/register]
  // [synchronize]
  auto sync = gw::synchronize(std::move(gradients), std::move(backend), options.compression, options.overlap,
                              options.bucketing);
  // [/synchronize]

  const work_division division(images.size(), options.global_batch, sync.size());
  const std::size_t size = static_cast<std::size_t>(sync.size());
  const std::size_t rank = static_cast<std::size_t>(sync.rank());
  const auto steps = static_cast<float>(options.epochs * division.steps_per_epoch);
  std::vector<double> losses;
  std::size_t skipped = 0;
  image_set batch;
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t epoch = 0; epoch < options.epochs; ++epoch) {
    const std::vector<std::size_t> order = shuffled(images.size(), options.seed + 1000 * (epoch + 1));
    for (std::size_t step = 0; step < division.steps_per_epoch && losses.size() < options.steps_max; ++step) {
      batch.pixel_values.clear();
      batch.labels.clear();
      for (std::size_t i = 0; i < division.shard; ++i) {
        const std::size_t chosen = order[(step * size + rank) * division.shard + i];
        batch.add(images.image(chosen), images.labels[chosen]);
      }
      // The learning rate falls to 0 in a straight line.
      descent how = options.how;
      how.learning_rate *= 1 - static_cast<float>(losses.size()) / steps;
      // [step]
      losses.push_back(model.forward(batch.pixel_values, batch.labels));
      const gw::step_result result = sync.step([&](auto& current) {
        model.backward(batch.labels, [&](std::size_t index) { current.ready(slots[index]); });
      });
      // The gradients are averages over all ranks now, with the same bits on each.
      if (result.finite()) {
        model.update(how);
      } else {
        ++skipped;  // on every rank: they agree on the result
      }
      // [/step]
      if (observe) {
        observe({epoch, options.epochs, step, division.steps_per_epoch, losses.back()});
      }
    }
  }
  const auto time = std::chrono::steady_clock::now() - began;
  return {std::move(model), std::move(losses), skipped, time, sync.statistics()};
}

}  // namespace digits
