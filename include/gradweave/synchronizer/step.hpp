/// @file
/// `open_step`: one backward pass whose gradients get synchronized, or accumulated.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/step_rules.hpp>

namespace gradweave {

/// What becomes of the gradients of a backward pass.
enum class step_purpose : std::uint8_t {
  synchronize,
  accumulate,  ///< nothing is sent; the trainer adds to the gradients, and a later step synchronizes the sums
};

/// Begun by `begin_step` or `begin_accumulation`, ended by `finish`. Destroyed unfinished it aborts the step on every
/// rank, so that an exception in one rank's backward pass reaches all of them.
template <class Engine, step_purpose Purpose = step_purpose::synchronize>
class open_step {
 public:
  explicit open_step(Engine& engine, const step_options& options = {}) : engine_(&engine) {
    if constexpr (Purpose == step_purpose::synchronize) {
      engine.begin_step(options);
    } else {
      engine.begin_accumulation();
    }
  }
  open_step(open_step&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)), closed_(other.closed_) {}
  open_step& operator=(open_step&&) = delete;
  ~open_step() {
    if (engine_ != nullptr) {
      engine_->abandon(
          "the step was given up before its end: an exception in the backward pass, or a missing finish()");
    }
  }

  /// The gradient of `which` is computed, or added to once more. From any thread, in any order, as often in each step as
  /// the slot is used (manifest::add); never blocks. What is not in the arena is copied there the last time, on the
  /// calling thread. Throws contract_violation where the slot is unknown, was ready before, or the step has ended.
  void ready(slot which) {
    require(engine_ != nullptr && !closed_, "ready: the step has ended; begin another one");
    engine_->ready(which);
  }

  /// Ends the backward pass and returns at once: with a lane that has a thread of its own the step goes on beside the
  /// caller. Throws as finish() where a gradient was not ready as often as it should be.
  void close()
    requires(Purpose == step_purpose::synchronize)
  {
    require(engine_ != nullptr, "close: the step has ended already");
    closed_ = true;
    engine_->close();
  }

  /// Returns once the gradient of `which`, which this rank has used in this step, is the average: what needs it can go on
  /// while others still travel. Closes the step. Whether the step ends well on all ranks is known after finish() only.
  /// Throws sync_error once the step has failed.
  void wait(slot which)
    requires(Purpose == step_purpose::synchronize)
  {
    close();
    engine_->wait(which);
  }

  /// Waits until all gradients are averages. Throws sync_error where a gradient was not ready as often as it should, or
  /// any rank failed, on every rank.
  step_result finish()
    requires(Purpose == step_purpose::synchronize)
  {
    require(engine_ != nullptr, "finish: the step has ended already");
    return std::exchange(engine_, nullptr)->finish();
  }

  /// Does not wait for other ranks. Throws sync_error where a gradient was not ready as often as it should, on every rank.
  void finish()
    requires(Purpose == step_purpose::accumulate)
  {
    require(engine_ != nullptr, "finish: the step has ended already");
    std::exchange(engine_, nullptr)->finish_accumulation();
  }

  /// When the synchronizer was made: gives synchronizers an order that all ranks share.
  auto made_at() const {
    require(engine_ != nullptr, "made_at: the step has ended already");
    return engine_->meter().made_at();
  }

  /// Gives the step up on every rank, with a reason that all of them are told.
  void abandon(const char* why) noexcept {
    if (engine_ != nullptr) {
      std::exchange(engine_, nullptr)->abandon(why);
    }
  }

 private:
  Engine* engine_;
  bool closed_ = false;
};

/// Ends steps of several synchronizers, over different groups of ranks for example. It closes all of them before it waits
/// for any, and waits in the order in which the synchronizers were made: so ranks that name their steps in different
/// orders do not wait for each other, as long as lanes run by themselves and all ranks made synchronizers in one order.
/// The results, in the order given. Throws as finish(); then what is not finished yet is given up.
template <class... Engines>
  requires(sizeof...(Engines) > 0)
std::array<step_result, sizeof...(Engines)> finish_all(open_step<Engines>&... steps) {
  (steps.close(), ...);
  const std::array made = {steps.made_at()...};
  std::array<std::size_t, sizeof...(Engines)> order{};
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return made[a] < made[b]; });
  std::array<step_result, sizeof...(Engines)> results{};
  for (const std::size_t next : order) {
    std::size_t i = 0;
    ((i == next ? void(results[i] = steps.finish()) : void(), ++i), ...);
  }
  return results;
}

}  // namespace gradweave
