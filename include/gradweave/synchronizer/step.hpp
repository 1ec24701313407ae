/// @file
/// `open_step`: one backward pass whose gradients get synchronized.
#pragma once

#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/statistics.hpp>

namespace gradweave {

/// Begun by `begin_step`, ended by `finish`. Destroyed unfinished it aborts the step on every rank, so that an exception
/// in one rank's backward pass reaches all of them.
template <class Engine>
class open_step {
 public:
  explicit open_step(Engine& engine) : engine_(&engine) { engine.begin_step(); }
  open_step(open_step&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  open_step& operator=(open_step&&) = delete;
  ~open_step() {
    if (engine_ != nullptr) {
      engine_->abandon(
          "the step was given up before its end: an exception in the backward pass, or a missing finish()");
    }
  }

  /// The gradient of `which` is computed. From any thread, in any order, once a step for each slot; never blocks. What
  /// is not in the arena is copied there, on the calling thread. Throws contract_violation where the slot is unknown,
  /// was ready before, or the step has ended.
  void ready(slot which) {
    require(engine_ != nullptr, "ready: the step has ended; begin another one");
    engine_->ready(which);
  }

  /// Waits until all gradients are averages. Throws sync_error where a gradient never became ready or any rank failed,
  /// on every rank.
  step_result finish() {
    require(engine_ != nullptr, "finish: the step has ended already");
    return std::exchange(engine_, nullptr)->finish();
  }

  /// Gives the step up on every rank, with a reason that all of them are told.
  void abandon(const char* why) noexcept {
    if (engine_ != nullptr) {
      std::exchange(engine_, nullptr)->abandon(why);
    }
  }

 private:
  Engine* engine_;
};

}  // namespace gradweave
