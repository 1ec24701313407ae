/// @file
/// The engine behind a synchronizer over a stream backend. Its steps are enqueued, by a lane with a thread of its own, and the
/// host waits for none of them; it may be ahead of the device by stream_watch::steps_max.
///
/// Threads: `ready` may be called from any; it touches atomics, and the slot's own event. Everything else that a step changes
/// is guarded by `mutex_`, which the lane holds in `advance`, or belongs to the caller between steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/engine_work.hpp>
#include <gradweave/synchronizer/first_failure.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/parameters.hpp>
#include <gradweave/synchronizer/plan_exchange.hpp>
#include <gradweave/synchronizer/policies.hpp>
#include <gradweave/synchronizer/ready_log.hpp>
#include <gradweave/synchronizer/step_record.hpp>
#include <gradweave/synchronizer/stream_line.hpp>
#include <gradweave/synchronizer/stream_sealing.hpp>
#include <gradweave/synchronizer/stream_watch.hpp>
#include <gradweave/synchronizer/use_ledger.hpp>

namespace gradweave::detail {

template <stream_backend Backend, bucketing_policy Bucketing, compression_policy Compression,
          stream_overlap_policy Overlap>
class stream_engine {
 public:
  using device_type = device_of<Overlap>;
  using stream = typename device_type::stream;

  stream_engine(manifest gradients, Backend backend, Bucketing bucketing, Compression compression, Overlap overlap,
                const step_rules& rules)
      : gradients_(without_copies(std::move(gradients))),
        backend_(std::move(backend)),
        bucketing_(std::move(bucketing)),
        compression_(std::move(compression)),
        overlap_(std::move(overlap)),
        rules_(rules),
        device_(overlap_.make_device()),
        ready_log_(gradients_.size()),
        watch_(backend_, device_, overlap_.deadline()),
        line_(backend_, device_, gradients_, divisor()),
        uses_(gradients_, rules, backend_.size() > 1),
        arena_(seal()),
        work_{this},
        lane_(overlap_.make_lane(work_)) {}

  stream_engine(const stream_engine&) = delete;
  stream_engine& operator=(const stream_engine&) = delete;

  /// What is under way ends first: the device works on memory of the engine.
  ~stream_engine() {
    wait_for(enqueued_);
    try {
      device_.synchronize(line_.get());
    } catch (...) {
      // The device does nothing any more.
    }
  }

  int rank() const { return backend_.rank(); }
  int size() const { return backend_.size(); }

  // ---- the caller's side --------------------------------------------------------------------------------------------

  void begin_step(const step_options& options) {
    rules_.check(options);
    constexpr std::size_t ahead_max = stream_watch<Backend, device_type>::steps_max - 1;
    wait_for(enqueued_ < ahead_max ? 0 : enqueued_ - ahead_max);
    std::lock_guard lock(mutex_);
    begin(true);
    line_.begin_step();
    own_record_ = {.step = step_, .accumulated = accumulated_, .loss_scale = options.loss_scale};
    began_ = clock::now();
    ready_log_.begin_step(bucketing_.replans_after(step_));
    closing_.store(false, std::memory_order_relaxed);
    finished_.store(false, std::memory_order_relaxed);
  }

  void begin_accumulation() {
    std::lock_guard lock(mutex_);
    ready_log_.begin_step(false);
    begin(false);
  }

  /// What computes the gradient is on `on` by now. From any thread, as often in a step as the slot is used.
  void ready(slot which, stream on) {
    check_place(which);
    if (!uses_.mark(which) || !uses_.sending()) {
      return;
    }
    line_.mark_ready(which, on);
    if (ready_log_.keeps()) {
      ready_log_.add(which, clock::now() - began_);
    }
    if (line_.count_down(which)) {
      lane_.notify();
    }
  }

  /// Enqueues the rest of the step, and makes `on` wait for its end.
  void finish(stream on) {
    settle_uses();
    closing_.store(true, std::memory_order_release);
    lane_.drain();
    {
      std::lock_guard lock(mutex_);
      open_ = false;
      failure_.throw_if_come();
      share([&] { device_.wait(on, watch_.last_end()); });
      accumulated_ = 0;
      ++step_;
    }
    if (ready_log_.keeps()) {
      replan();
    }
  }

  void finish_accumulation() {
    settle_uses();
    std::lock_guard lock(mutex_);
    open_ = false;
    failure_.throw_if_come();
    ++accumulated_;
  }

  /// Returns once the last step that has been finished is over on the device.
  step_result synchronize() {
    wait_for(enqueued_);
    std::lock_guard lock(mutex_);
    failure_.throw_if_come();
    return last_result_;
  }

  /// Gives the step up on every rank. Does not throw.
  void abandon(const char* why) noexcept {
    try {
      fail({errc::aborted, rank(), static_cast<std::int64_t>(step_), -1, {}, why});
    } catch (...) {
      // No memory to tell the others why: they see this rank's end of the connection close.
    }
  }

  const step_verdict* verdict() const { return line_.verdict(); }
  const gradient_table& gradients() const { return gradients_; }
  const bucket_plan& plan() const { return line_.buckets().plan(); }
  bool compresses(element_kind kind) const { return compression_.compresses(kind); }
  description describe() const { return describe_choices(backend_, bucketing_, compression_, overlap_, rules_); }

  sync_statistics statistics() const {
    std::lock_guard lock(mutex_);
    return totals_;
  }

  // ---- the lane's side ----------------------------------------------------------------------------------------------

  lane_status advance() noexcept {
    std::lock_guard lock(mutex_);
    if (!failure_.has_come()) {
      contain([&] { advance_step(); });
    }
    if (failure_.has_come()) {
      give_up();
      return lane_status::finished;
    }
    return watch_.under_way() != 0 ? lane_status::pending : lane_status::idle;
  }

  void wait() noexcept {}

  bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }

 private:
  using clock = std::chrono::steady_clock;
  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));
  using lane_type = decltype(std::declval<const Overlap&>().make_lane(std::declval<engine_work<stream_engine>&>()));

  std::uint32_t divisor() const {
    return rules_.average == averaging::sum ? 1 : static_cast<std::uint32_t>(backend_.size());
  }

  // ---- sealing ------------------------------------------------------------------------------------------------------

  /// As an engine on hosts does, but that values travel on the stream.
  arena_type seal() {
    arena_type arena = backend_.allocate_arena(0);
    share([&] {
      arena = place_gradients_for_streams(backend_, gradients_, rules_, describe());
      uses_.seal();
      device_.enter();
      line_.adopt(make_plan({}), compression_);
      if (size() > 1) {
        broadcast_parameters();
      }
    });
    return arena;
  }

  bucket_plan make_plan(std::span<const ready_event> observed) {
    return agree_on_plan(backend_.control(), bucketing_, gradients_.sizes(), observed);
  }

  void broadcast_parameters() {
    const int root = rules_.values.broadcast_from;
    const std::vector<extent> parameters = parameter_extents(root, size(), gradients_.entries());
    if (parameters.empty()) {
      return;
    }
    line_.enqueue({.operation = collective::broadcast, .root = root, .data = parameters});
    device_.record(watch_.end(), line_.get());
    watch_.add({}, false);
    while (watch_.under_way() != 0) {
      watch_.advance([](const step_record&, const step_verdict&) {});
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  /// The caller holds the mutex.
  void begin(bool sending) {
    failure_.throw_if_come();
    require(!open_, "begin_step: the step before has not been finished");
    open_ = true;
    uses_.begin_step(sending);
  }

  /// Kernels look for a gradient where it was when the plan was made.
  void check_place(slot which) const {
    if (which.index < gradients_.size() &&
        gradients_.entries()[which.index].gradient.data() != gradients_.memory(which)) [[unlikely]] {
      violate("ready: the gradient of slot '" + gradients_.name(which) +
              "' lies elsewhere than when it was registered; on a stream it has to stay where it is");
    }
  }

  /// What use_ledger::settle throws fails the step on every rank.
  void settle_uses() {
    try {
      uses_.settle(line_.buckets(), true, [](slot) {});
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

  /// Once the stream has got past the last use of the present plan.
  void replan() {
    synchronize();
    std::lock_guard lock(mutex_);
    share([&] {
      bucket_plan plan = make_plan(ready_log_.events());
      if (plan != line_.buckets().plan()) {
        line_.adopt(std::move(plan), compression_);
      }
    });
  }

  /// On the lane: enqueues what is complete, and looks after what is under way.
  void advance_step() {
    device_.enter();
    if (open_ && uses_.sending() && !finished()) {
      const bool closing = closing_.load(std::memory_order_acquire);
      if (line_.advance(closing ? &own_record_ : nullptr, watch_)) {
        ++enqueued_;
        finished_.store(true, std::memory_order_release);
      }
    }
    watch_.advance([&](const step_record& own, const step_verdict& verdict) { count_step(own, verdict); });
  }

  /// On the lane: a step is over on the device.
  void count_step(const step_record& own, const step_verdict& verdict) {
    last_result_ = {own.step, verdict.non_finite};
    totals_.steps += 1;
    totals_.bytes_raw += gradients_.bytes();
    totals_.non_finite += verdict.non_finite;
    totals_.bytes_on_wire = backend_.payload_bytes_sent();
    over_.fetch_add(1, std::memory_order_release);
    over_.notify_all();
  }

  /// Until so many steps are over on the device, or a failure has come.
  void wait_for(std::uint64_t steps) const {
    for (std::uint64_t over = over_.load(std::memory_order_acquire); over < steps;
         over = over_.load(std::memory_order_acquire)) {
      over_.wait(over, std::memory_order_acquire);
    }
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  /// Nobody waits any more.
  void give_up() {
    finished_.store(true, std::memory_order_release);
    over_.store(UINT64_MAX / 2, std::memory_order_release);
    over_.notify_all();
  }

  /// Tells all ranks. From then on the lane enqueues nothing any more.
  void fail(failure cause) {
    cause = failure_.tell(std::move(cause));
    {
      std::lock_guard lock(mutex_);
      failure_.keep(std::move(cause));
      give_up();
      open_ = false;
    }
  }

  failure in_context(failure cause) const {
    if (cause.step < 0 && open_) {
      cause.step = static_cast<std::int64_t>(step_);
      cause = line_.in_context(std::move(cause));
    }
    return cause;
  }

  template <class Action>
  void contain(Action&& action) {
    failure_.contain(action, [this](failure cause) { return in_context(std::move(cause)); });
  }

  template <class Action>
  void share(Action&& action) {
    failure_.share(action, [this](failure cause) { return in_context(std::move(cause)); });
  }

  gradient_table gradients_;
  Backend backend_;
  Bucketing bucketing_;
  Compression compression_;
  Overlap overlap_;
  step_rules rules_;
  device_type device_;
  ready_log ready_log_;
  stream_watch<Backend, device_type> watch_;
  stream_line<Backend, device_type, Compression> line_;
  use_ledger uses_;

  mutable std::mutex mutex_;
  bool open_ = false;
  std::uint64_t step_ = 0;
  std::uint32_t accumulated_ = 0;  // steps since the last one that was sent
  step_record own_record_;
  clock::time_point began_{};
  step_result last_result_;
  sync_statistics totals_;
  std::uint64_t enqueued_ = 0;          // steps that are enqueued to their ends
  std::atomic<std::uint64_t> over_{0};  // those that are over on the device
  std::atomic<bool> closing_{false};    // the caller has ended the step
  std::atomic<bool> finished_{true};    // the lane has enqueued all of it
  first_failure<Backend> failure_{backend_};

  arena_type arena_;  // gradients: given up only with the engine
  engine_work<stream_engine> work_;
  lane_type lane_;  // last: its thread uses all of the above
};

}  // namespace gradweave::detail
