/// @file
/// The engine behind a synchronizer: slots, buckets, the lane, and the state machine that takes a step from its first
/// ready gradient to the step record.
///
/// Threads: `ready` may be called from any; it touches atomics, and memory of the slot's own. Everything else that a
/// step changes is guarded by `mutex_`, which the lane holds in `advance`, or belongs to the caller between steps.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/synchronizer/agreement.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>
#include <gradweave/synchronizer/bucket_set.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/plan_exchange.hpp>
#include <gradweave/synchronizer/report.hpp>
#include <gradweave/synchronizer/step_meter.hpp>
#include <gradweave/synchronizer/step_record.hpp>
#include <gradweave/version.hpp>

namespace gradweave::detail {

/// What the lane drives of an engine. A type of its own, since the engine is not complete where its lane is named.
template <class Engine>
struct engine_work {
  Engine* driven;

  lane_status advance() noexcept { return driven->advance(); }
  void wait() noexcept { driven->wait(); }
  bool finished() const noexcept { return driven->finished(); }
};

template <host_backend Backend, bucketing_policy Bucketing, compression_policy Compression, overlap_policy Overlap>
class engine {
 public:
  engine(manifest gradients, Backend backend, Bucketing bucketing, Compression compression, Overlap overlap)
      : gradients_(std::move(gradients)),
        backend_(std::move(backend)),
        bucketing_(std::move(bucketing)),
        compression_(std::move(compression)),
        overlap_(std::move(overlap)),
        ready_events_(gradients_.size()),
        records_(backend_.rank(), backend_.size()),
        arena_(seal()),
        work_{this},
        lane_(overlap_.make_lane(work_)) {}

  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  int rank() const { return backend_.rank(); }
  int size() const { return backend_.size(); }

  // ---- the caller's side --------------------------------------------------------------------------------------------

  void begin_step() {
    std::lock_guard lock(mutex_);
    if (failure_) {
      throw sync_error(*failure_);
    }
    require(!open_, "begin_step: the step before has not been finished");
    open_ = true;
    gradients_.begin_step();
    buckets_.begin_step();
    next_bucket_ = 0;
    stage_ = 0;
    ready_count_.store(0, std::memory_order_relaxed);
    record_started_ = false;
    non_finite_ = 0;
    observing_ = bucketing_.replans_after(step_);
    closing_.store(false, std::memory_order_relaxed);
    finished_.store(false, std::memory_order_relaxed);
    meter_.begin(backend_.payload_bytes_sent());
  }

  /// From any thread, once a step for each slot.
  void ready(slot which) {
    gradients_.mark_ready(which, size() > 1);
    if (observing_) {
      ready_events_[ready_count_.fetch_add(1, std::memory_order_relaxed)] = {which, meter_.since_begin()};
    }
    if (buckets_.count_down(which) && size() > 1) {
      lane_.notify();
    }
  }

  step_result finish() {
    meter_.backward_ended();
    if (auto missing = missing_gradients(buckets_, gradients_)) {
      missing->rank = rank();
      missing->step = static_cast<std::int64_t>(step_);
      fail(std::move(*missing));
      throw sync_error(*failure_);
    }
    if (size() > 1) {
      closing_.store(true, std::memory_order_release);
      lane_.drain();
    }
    std::lock_guard lock(mutex_);
    open_ = false;
    if (failure_) {
      throw sync_error(*failure_);
    }
    meter_.end(backend_.payload_bytes_sent(), gradients_.bytes(), non_finite_, statistics_);
    const step_result result{step_++, non_finite_};
    if (observing_) {
      share([&] {
        bucket_plan plan = make_plan(std::span(ready_events_).first(ready_count_.load(std::memory_order_relaxed)));
        if (plan != buckets_.plan()) {
          adopt(std::move(plan));
        }
      });
    }
    return result;
  }

  /// Gives the step up on every rank, and returns once the lane touches no gradient any more. Does not throw.
  void abandon(const char* why) noexcept {
    try {
      fail({errc::aborted, rank(), static_cast<std::int64_t>(step_), -1, {}, why});
    } catch (...) {
      // No memory to tell the others why: they see this rank's end of the connection close.
    }
  }

  const gradient_table& gradients() const { return gradients_; }
  const sync_statistics& statistics() const { return statistics_; }
  const bucket_plan& plan() const { return buckets_.plan(); }

  /// The backend and the policies with their options.
  description describe() const {
    description said;
    said.nest("backend", backend_);
    said.nest("bucketing", bucketing_);
    said.nest("compression", compression_);
    said.nest("overlap", overlap_);
    return said;
  }

  description describe_here() const { return own_description(backend_); }

  bool compresses(element_kind kind) const { return compression_.compresses(kind); }

  // ---- the lane's side ----------------------------------------------------------------------------------------------

  lane_status advance() noexcept {
    std::lock_guard lock(mutex_);
    if (!open_) {
      return lane_status::idle;
    }
    if (!finished_.load(std::memory_order_relaxed)) {
      lane_status status = lane_status::finished;
      contain([&] { status = advance_step(); });
      if (status != lane_status::finished) {
        return status;
      }
      meter_.last_collective_ended();
      finished_.store(true, std::memory_order_release);
    }
    return lane_status::finished;
  }

  void wait() noexcept {
    try {
      backend_.wait();
    } catch (...) {
      std::lock_guard lock(mutex_);
      contain([] { throw; });
    }
  }

  bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }

 private:
  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));
  using program_type =
      decltype(std::declval<const Compression&>().prepare(std::declval<bucket_layout>(), program_world{}));
  using lane_type = decltype(std::declval<const Overlap&>().make_lane(std::declval<engine_work<engine>&>()));

  // ---- sealing ------------------------------------------------------------------------------------------------------

  /// Agrees with the other ranks, lays out the arena, plans, and broadcasts the parameters.
  arena_type seal() {
    arena_type arena = backend_.allocate_arena(0);
    share([&] {
      gradients_.check_memory_space(Backend::space);
      if (size() > 1) {
        agree(backend_, describe_contract());
      }
      const arena_layout layout = lay_out_arena(gradients_.entries());
      arena = backend_.allocate_arena(layout.bytes);
      gradients_.place(layout, arena.data());
      adopt(make_plan({}));
      if (size() > 1) {
        broadcast_parameters(backend_, gradients_.entries());
      }
    });
    return arena;
  }

  /// What has to be the same on every rank.
  description describe_contract() const {
    description said = describe();
    said.add("library version", version_string);
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      said.add("slot " + std::to_string(i), describe_slot(gradients_.entries()[i]));
    }
    return said;
  }

  bucket_plan make_plan(std::span<const ready_event> observed) {
    return agree_on_plan(backend_, bucketing_, gradients_.sizes(), observed);
  }

  void adopt(bucket_plan plan) {
    buckets_.adopt(std::move(plan), gradients_, compression_, {rank(), size()});
    scratch_bytes_ = size() > 1 ? buckets_.scratch_bytes() : 0;
    scratch_.reset();
    scratch_.emplace(backend_.allocate_arena(scratch_bytes_));
  }

  // ---- the step's state machine -------------------------------------------------------------------------------------

  /// Gets on until a collective is under way, or the next bucket is incomplete, or the step is over.
  lane_status advance_step() {
    if (failure_) {
      return lane_status::finished;
    }
    for (;;) {
      if (in_flight_) {
        if (!backend_.poll()) {
          return lane_status::pending;
        }
        in_flight_ = false;
      }
      if (next_bucket_ < buckets_.size()) {
        if (!buckets_[next_bucket_].complete()) {
          return lane_status::idle;
        }
        advance_bucket(buckets_[next_bucket_]);
      } else if (!record_started_) {
        if (!closing_.load(std::memory_order_acquire)) {
          return lane_status::idle;
        }
        record_started_ = true;
        step_record own;
        own.step = step_;
        own.non_finite = non_finite_;
        own.plan_version = buckets_.version();
        launch(records_.request(own));
      } else {
        non_finite_ = records_.non_finite();
        return lane_status::finished;
      }
    }
  }

  void advance_bucket(bucket<program_type>& current) {
    auto request = current.program->run(stage_, {scratch_->data(), scratch_bytes_});
    if (request) {
      ++stage_;
      launch(*request);
      return;
    }
    non_finite_ += current.program->non_finite();
    for (const bucket_member& member : current.members) {
      gradients_.copy_back(member.which);
    }
    ++next_bucket_;
    stage_ = 0;
  }

  void launch(collective_request request) {
    meter_.launch();
    request.plan_version = buckets_.version();
    backend_.start(request);
    in_flight_ = true;
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  /// Tells all ranks, keeps the cause that came first, and waits for the lane.
  void fail(failure cause) {
    cause = backend_.abort(std::move(cause));
    {
      std::lock_guard lock(mutex_);
      failure_ = failure_ ? failure_ : std::move(cause);
    }
    if (size() > 1) {
      lane_.drain();
    }
    std::lock_guard lock(mutex_);
    open_ = false;
  }

  /// Adds what the engine knows to what the backend reported.
  failure in_context(failure cause) const {
    if (cause.step < 0 && open_) {
      cause.step = static_cast<std::int64_t>(step_);
      if (next_bucket_ < buckets_.size() && cause.bucket < 0) {
        cause.bucket = static_cast<std::int64_t>(next_bucket_);
        for (const bucket_member& member : buckets_[next_bucket_].members) {
          cause.slots.push_back(gradients_.name(member.which));
        }
      }
    }
    return cause;
  }

  /// Keeps the cause that came first on any rank. The caller holds the mutex, or no step is open.
  void keep(failure cause) {
    cause = backend_.abort(in_context(std::move(cause)));
    failure_ = failure_ ? failure_ : std::move(cause);
  }

  /// On the lane: what is thrown becomes the failure, here and on the other ranks, and goes no further.
  template <class Action>
  void contain(Action&& action) {
    try {
      action();
    } catch (const sync_error& error) {
      keep(error.cause());
    } catch (const std::exception& error) {
      keep({errc::internal, rank(), -1, -1, {}, error.what()});
    }
  }

  /// On the caller, outside a step: what is thrown reaches the other ranks too.
  template <class Action>
  void share(Action&& action) {
    try {
      action();
    } catch (const sync_error& error) {
      keep(error.cause());
      throw sync_error(*failure_);
    } catch (const std::exception& error) {
      keep({errc::aborted, rank(), -1, -1, {}, error.what()});
      throw;
    }
  }

  gradient_table gradients_;
  Backend backend_;
  Bucketing bucketing_;
  Compression compression_;
  Overlap overlap_;

  bucket_set<program_type> buckets_;
  std::vector<ready_event> ready_events_;
  record_exchange records_;
  std::optional<arena_type> scratch_;
  std::size_t scratch_bytes_ = 0;
  sync_statistics statistics_;

  // The present step.
  std::mutex mutex_;
  bool open_ = false;
  bool observing_ = false;
  std::uint64_t step_ = 0;
  std::atomic<std::size_t> ready_count_{0};
  std::atomic<bool> closing_{false};   // the caller has ended the step: the record may go
  std::atomic<bool> finished_{false};  // the lane has ended the step
  std::size_t next_bucket_ = 0;
  int stage_ = 0;
  bool in_flight_ = false;
  bool record_started_ = false;
  std::uint64_t non_finite_ = 0;
  std::optional<failure> failure_;
  step_meter meter_;

  arena_type arena_;  // gradients: given up only with the engine
  engine_work<engine> work_;
  lane_type lane_;  // last: its thread uses all of the above
};

}  // namespace gradweave::detail
