/// @file
/// The engine behind a synchronizer: slots, the line of buckets and its lane, from a step's first ready gradient to its
/// end, and what becomes of failures.
///
/// Threads: `ready` may be called from any; it touches atomics, and memory of the slot's own. Everything else that a
/// step changes is guarded by `mutex_`, which the lane holds in `advance`, or belongs to the caller between steps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/diagnostics/recording_backend.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/averager.hpp>
#include <gradweave/synchronizer/bucket_line.hpp>
#include <gradweave/synchronizer/buffers.hpp>
#include <gradweave/synchronizer/engine_work.hpp>
#include <gradweave/synchronizer/first_failure.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/parameters.hpp>
#include <gradweave/synchronizer/plan_exchange.hpp>
#include <gradweave/synchronizer/policies.hpp>
#include <gradweave/synchronizer/ready_log.hpp>
#include <gradweave/synchronizer/report.hpp>
#include <gradweave/synchronizer/sealing.hpp>
#include <gradweave/synchronizer/step_meter.hpp>
#include <gradweave/synchronizer/step_mutex.hpp>
#include <gradweave/synchronizer/step_record.hpp>
#include <gradweave/synchronizer/use_ledger.hpp>

namespace gradweave::detail {

template <host_backend Backend, bucketing_policy Bucketing, compression_policy Compression, overlap_policy Overlap>
class engine {
 public:
  engine(manifest gradients, Backend backend, Bucketing bucketing, Compression compression, Overlap overlap,
         const step_rules& rules, const diagnostics_options& diagnostics = {})
      : gradients_(std::move(gradients)),
        backend_(std::move(backend), diagnostics),
        bucketing_(std::move(bucketing)),
        compression_(std::move(compression)),
        overlap_(std::move(overlap)),
        rules_(rules),
        ready_log_(gradients_.size()),
        meter_(backend_.size()),
        line_(backend_, gradients_, meter_, averager(rules, backend_.size())),
        uses_(gradients_, rules, backend_.size() > 1),
        arena_(seal()),
        work_{this},
        lane_(overlap_.make_lane(work_)) {}

  int rank() const { return backend_.rank(); }
  int size() const { return backend_.size(); }

  // ---- the caller's side --------------------------------------------------------------------------------------------

  void begin_step(const step_options& options, bool has_data = true) {
    rules_.check(options);
    {
      std::lock_guard lock(mutex_);
      begin(true);
      const std::uint64_t weight = rules_.average == averaging::weighted_mean ? options.samples : 1;
      line_.begin_step(has_data ? weight : 0);
      own_record_ = {
          .step = step_, .accumulated = accumulated_, .loss_scale = options.loss_scale, .has_data = has_data};
      // Ready times mean something once uses are known.
      const std::uint64_t unknown = rules_.uses == use_counts::recorded ? 1 : 0;
      ready_log_.begin_step(step_ >= unknown && bucketing_.replans_after(step_ - unknown));
      closing_.store(false, std::memory_order_relaxed);
      finished_.store(false, std::memory_order_relaxed);
    }
    if (rules_.is_weighted() && size() > 1) {
      lane_.notify();  // the counts of samples can travel already
    }
  }

  /// Begins a step that sends nothing: the trainer adds up its gradients until those of a later step are sent.
  void begin_accumulation() {
    std::lock_guard lock(mutex_);
    ready_log_.begin_step(false);
    begin(false);
  }

  /// From any thread, as often in a step as each slot is used.
  void ready(slot which) {
    meter_.ready();
    if (uses_.mark(which)) {
      if (ready_log_.keeps()) {
        ready_log_.add(which, meter_.since_begin());
      }
      count_down(which);
    }
  }

  /// Ends the backward pass, so that the step can end by itself.
  void close() {
    mutex_.require_not_held();
    if (!std::exchange(closed_, true)) {
      meter_.backward_ended();
      settle_uses(true);
      hand_over();
    }
  }

  /// Returns once the gradient of `which` is the average. Closes the step.
  void wait(slot which) {
    close();
    require(which.index < gradients_.size() && gradients_.is_ready(which),
            "wait: the slot was not used in this step by this rank; its gradient is known once finish() has returned");
    const auto since = step_meter::clock::now();
    if (size() > 1) {
      runs_by_itself(lane_) ? line_.wait_for(which) : lane_.drain();
    }
    std::lock_guard lock(mutex_);
    meter_.waited(since);
    failure_.throw_if_come();
  }

  step_result finish() {
    close();
    return end_step(true);
  }

  /// A step of a rank that has no data: it contributes zeros to what the others have. False where no rank has any.
  bool shadow_step() {
    begin_step({}, false);
    meter_.backward_ended();
    settle_uses(false);
    hand_over();
    end_step(false);
    return line_.outcome().live >= 0;
  }

  void on_reduced(std::function<void(std::span<const slot>)> told) {
    between_steps([&] { line_.on_reduced(std::move(told)); });
  }

  /// The parameters of a rank that had data in the last step in which any had.
  void broadcast_parameters_of_last() {
    between_steps([&] { broadcast_parameters(backend_, last_live_, gradients_.entries()); });
  }

  void finish_accumulation() {
    meter_.backward_ended();
    settle_uses(true);
    std::lock_guard lock(mutex_);
    open_ = false;
    failure_.throw_if_come();
    ++accumulated_;
  }

  void compare_parameters() {
    between_steps([&] { detail::compare_parameters(backend_, gradients_.entries()); });
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
  const step_meter& meter() const { return meter_; }
  const bucket_plan& plan() const { return line_.buckets().plan(); }
  const step_rules& rules() const { return rules_; }
  std::uint64_t accumulated() const { return accumulated_; }

  description describe() const { return describe_choices(backend_, bucketing_, compression_, overlap_, rules_); }
  description describe_here() const { return own_description(backend_); }
  description describe_peers() const { return peers_description(backend_); }
  bool compresses(element_kind kind) const { return compression_.compresses(kind); }

  // ---- the lane's side ----------------------------------------------------------------------------------------------

  lane_status advance() noexcept {
    std::lock_guard lock(mutex_);
    if (!open_ || !uses_.sending()) {
      return lane_status::idle;
    }
    if (!finished_.load(std::memory_order_relaxed)) {
      lane_status status = lane_status::finished;
      contain([&] {
        status = failure_.has_come() ? lane_status::finished
                                     : line_.advance(closing_.load(std::memory_order_acquire) ? &own_record_ : nullptr);
      });
      if (status != lane_status::finished) {
        return status;
      }
      meter_.last_collective_ended();
      finished_.store(true, std::memory_order_release);
      line_.release_waiting();
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
  using backend_type = recording_backend<Backend>;
  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));
  using lane_type = decltype(std::declval<const Overlap&>().make_lane(std::declval<engine_work<engine>&>()));

  // ---- sealing ------------------------------------------------------------------------------------------------------

  /// Agrees with the other ranks, lays out the arena, plans, and broadcasts the parameters.
  arena_type seal() {
    meter_.record_to(backend_.records());
    arena_type arena = backend_.allocate_arena(0);
    share([&] {
      arena = place_gradients(backend_, gradients_, rules_, describe());
      uses_.seal();
      line_.adopt(make_plan({}), compression_);
      begin_parameters(backend_, gradients_, rules_);
      meter_.set_up_ended();
    });
    return arena;
  }

  bucket_plan make_plan(std::span<const ready_event> observed) {
    return agree_on_plan(backend_, bucketing_, gradients_.sizes(), observed);
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  /// From here on the lane can end the step.
  void hand_over() {
    if (size() > 1) {
      own_record_.unused_digest = uses_.unused_digest();
      meter_.write(own_record_);
      closing_.store(true, std::memory_order_release);
      lane_.notify();
    }
  }

  step_result end_step(bool has_data) {
    const auto since = step_meter::clock::now();
    if (size() > 1) {
      lane_.drain();
    }
    std::lock_guard lock(mutex_);
    open_ = false;
    failure_.throw_if_come();
    meter_.waited(since);
    if (size() == 1) {
      share([&] { line_.tell_all_reduced(); });
    } else {
      share([&] {
        line_.tell_reduced(uses_.settle_zeros(backend_, line_.outcome(), has_data));
        buffers_.exchange(backend_, line_.records());
        compare_if_due(backend_, gradients_.entries(), rules_.values, step_);
      });
    }
    meter_.end(backend_.payload_bytes_sent(), gradients_.bytes(), line_.outcome().non_finite, line_.records());
    accumulated_ = 0;
    last_live_ = line_.outcome().live >= 0 ? line_.outcome().live : last_live_;
    const step_result result{step_++, line_.outcome().non_finite};
    if (ready_log_.keeps()) {
      share([&] {
        bucket_plan plan = make_plan(ready_log_.events());
        if (plan != line_.buckets().plan()) {
          line_.adopt(std::move(plan), compression_);
        }
      });
    }
    return result;
  }

  /// The caller holds the mutex.
  void begin(bool sending) {
    failure_.throw_if_come();
    require(!open_, "begin_step: the step before has not been finished");
    open_ = true;
    closed_ = false;
    uses_.begin_step(sending);
  }

  /// What use_ledger::settle throws fails the step on every rank.
  void settle_uses(bool has_data) {
    try {
      uses_.settle(line_.buckets(), has_data, [&](slot which) { count_down(which); });
    } catch (const sync_error& error) {
      failure cause = error.cause();
      cause.rank = rank();
      cause.step = static_cast<std::int64_t>(step_);
      fail(std::move(cause));
      failure_.throw_if_come();
    } catch (const std::exception& error) {
      abandon(error.what());
      throw;
    }
  }

  void count_down(slot which) {
    if (uses_.sending() && line_.count_down(which) && size() > 1) {
      lane_.notify();
    }
  }

  template <class Action>
  void between_steps(Action&& action) {
    std::lock_guard lock(mutex_);
    require(!open_, "this can't be asked for while a step is open");
    share(action);
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  /// Tells all ranks, and waits for the lane.
  void fail(failure cause) {
    cause = failure_.tell(std::move(cause));
    std::unique_lock lock(mutex_);
    failure_.keep(std::move(cause));
    if (open_ && uses_.sending() && size() > 1) {
      lock.unlock();
      lane_.drain();
      lock.lock();
    }
    open_ = false;
  }

  /// Adds what the engine knows to what the backend reported.
  failure in_context(failure cause) const {
    if (cause.step < 0 && open_) {
      cause.step = static_cast<std::int64_t>(step_);
      cause = line_.in_context(std::move(cause));
    }
    return cause;
  }

  /// On the lane: what is thrown becomes the failure, here and on the other ranks, and goes no further.
  template <class Action>
  void contain(Action&& action) {
    failure_.contain(action, [this](failure cause) { return in_context(std::move(cause)); });
  }

  /// On the caller, outside a step: what is thrown reaches the other ranks too.
  template <class Action>
  void share(Action&& action) {
    failure_.share(action, [this](failure cause) { return in_context(std::move(cause)); });
  }

  gradient_table gradients_;
  backend_type backend_;
  Bucketing bucketing_;
  Compression compression_;
  Overlap overlap_;
  step_rules rules_;
  ready_log ready_log_;
  step_meter meter_;
  bucket_line<backend_type, Compression> line_;
  use_ledger uses_;
  buffer_exchange buffers_{gradients_.buffers()};

  // The present step.
  step_mutex mutex_;
  bool open_ = false;
  bool closed_ = false;
  std::uint64_t step_ = 0;
  std::uint32_t accumulated_ = 0;  // steps since the last one that was sent
  int last_live_ = 0;              // a rank that had data when last any had
  step_record own_record_;
  std::atomic<bool> closing_{false};   // the caller has ended the step: the record may go
  std::atomic<bool> finished_{false};  // the lane has ended the step
  first_failure<backend_type> failure_{backend_};

  arena_type arena_;  // gradients: given up only with the engine
  engine_work<engine> work_;
  lane_type lane_;  // last: its thread uses all of the above
};

}  // namespace gradweave::detail
