/// @file
/// `open_stream_step`: one backward pass on streams, whose gradients get synchronized, or accumulated.
#pragma once

#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/step.hpp>

namespace gradweave {

/// Begun by `begin_step` or `begin_accumulation`, ended by `finish`. Destroyed unfinished it aborts the step on every rank.
template <class Engine, step_purpose Purpose = step_purpose::synchronize>
class open_stream_step {
 public:
  using stream = typename Engine::stream;

  explicit open_stream_step(Engine& engine, const step_options& options = {}) : engine_(&engine) {
    if constexpr (Purpose == step_purpose::synchronize) {
      engine.begin_step(options);
    } else {
      engine.begin_accumulation();
    }
  }
  open_stream_step(open_stream_step&& other) noexcept : engine_(std::exchange(other.engine_, nullptr)) {}
  open_stream_step& operator=(open_stream_step&&) = delete;
  ~open_stream_step() {
    abandon("the step was given up before its end: an exception in the backward pass, or a missing finish()");
  }

  /// What computes the gradient of `which`, or adds to it once more, has been enqueued on `on`. From any thread, in any order,
  /// as often in each step as the slot is used; never blocks. Uses on several streams have to be ordered among each other, as
  /// they add to one gradient: the lane waits for the stream of the last. Throws contract_violation where the slot is unknown,
  /// was ready before, lies elsewhere than when it was registered, or the step has ended.
  void ready(slot which, stream on) {
    require(engine_ != nullptr, "ready: the step has ended; begin another one");
    engine_->ready(which, on);
  }

  /// Ends the backward pass. Returns once everything is enqueued; what is enqueued on `on` from now on sees the averages, and
  /// may write to gradients. Throws sync_error where a gradient was not ready as often as it should be, or any rank has failed
  /// as far as is known.
  void finish(stream on)
    requires(Purpose == step_purpose::synchronize)
  {
    require(engine_ != nullptr, "finish: the step has ended already");
    std::exchange(engine_, nullptr)->finish(on);
  }

  /// Sends nothing. Throws sync_error where a gradient was not ready as often as it should be, on every rank.
  void finish()
    requires(Purpose == step_purpose::accumulate)
  {
    require(engine_ != nullptr, "finish: the step has ended already");
    std::exchange(engine_, nullptr)->finish_accumulation();
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
