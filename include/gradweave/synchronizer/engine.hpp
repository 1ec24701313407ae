/// @file
/// The engine behind a synchronizer: slots, buckets, the lane, and the state machine that takes a step from its first
/// ready gradient to the step record.
///
/// Threads: `ready` may be called from any; it touches atomics, and memory of the slot's own. Everything else that a
/// step changes is guarded by `mutex_`, which the lane holds in `advance`, or belongs to the caller between steps.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
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
#include <gradweave/synchronizer/bucket.hpp>
#include <gradweave/synchronizer/plan_exchange.hpp>
#include <gradweave/synchronizer/step_record.hpp>
#include <gradweave/version.hpp>

namespace gradweave::detail {

using clock = std::chrono::steady_clock;

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
      : manifest_(std::move(gradients)),
        backend_(std::move(backend)),
        bucketing_(std::move(bucketing)),
        compression_(std::move(compression)),
        overlap_(std::move(overlap)),
        slots_(manifest_.size()),
        ready_events_(manifest_.size()),
        records_(static_cast<std::size_t>(backend_.size())),
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
    ++epoch_;
    for (auto& each : buckets_) {
      each.missing.store(static_cast<std::uint32_t>(each.members.size()), std::memory_order_relaxed);
    }
    next_bucket_ = 0;
    stage_ = 0;
    ready_count_.store(0, std::memory_order_relaxed);
    record_started_ = false;
    launched_ = false;
    non_finite_ = 0;
    observing_ = bucketing_.replans_after(step_);
    closing_.store(false, std::memory_order_relaxed);
    finished_.store(false, std::memory_order_relaxed);
    bytes_sent_before_ = backend_.payload_bytes_sent();
    step_began_ = clock::now();
  }

  /// From any thread, once a step for each slot.
  void ready(slot which) {
    if (which.index >= slots_.size()) [[unlikely]] {
      violate("ready: slot " + std::to_string(which.index) + " is not one of this manifest's " +
              std::to_string(slots_.size()));
    }
    slot_state& state = slots_[which.index];
    if (state.ready_in.exchange(epoch_, std::memory_order_relaxed) == epoch_) [[unlikely]] {
      violate("ready: slot '" + name(which) + "' is ready for the second time in step " + std::to_string(step_) +
              "; was backward called twice?");
    }
    if (state.copied && size() > 1) {
      state.tensor = manifest_.entries()[which.index].gradient.data();
      std::memcpy(state.memory, state.tensor, state.bytes);
    }
    if (observing_) {
      ready_events_[ready_count_.fetch_add(1, std::memory_order_relaxed)] = {which, clock::now() - step_began_};
    }
    if (buckets_[state.bucket].missing.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      lane_.notify();
    }
  }

  step_result finish() {
    const auto backward_ended = clock::now();
    if (auto cause = missing_gradients()) {
      fail(std::move(*cause));
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
    const auto ended = clock::now();
    ++statistics_.steps;
    statistics_.exposed_time += size() > 1 ? ended - backward_ended : clock::duration{};
    statistics_.step_time += ended - step_began_;
    statistics_.communication_time += launched_ ? last_completed_ - first_launched_ : clock::duration{};
    statistics_.bytes_raw += gradient_bytes_;
    statistics_.bytes_on_wire += backend_.payload_bytes_sent() - bytes_sent_before_;
    statistics_.non_finite += non_finite_;
    const step_result result{step_++, non_finite_};
    if (observing_) {
      share([&] { replan(); });
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

  const manifest& gradients() const { return manifest_; }
  const sync_statistics& statistics() const { return statistics_; }
  const bucket_plan& plan() const { return plan_; }
  std::byte* memory(slot which) const { return slots_[which.index].memory; }

  description describe() const {
    description said;
    said.nest("backend", backend_);
    describe_policies(said);
    return said;
  }

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
      last_completed_ = clock::now();
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
  struct slot_state {
    std::atomic<std::uint32_t> ready_in{0};  // the epoch in which it last became ready
    std::uint32_t bucket = 0;
    bool copied = false;                     // the gradient lives in the tensor, not where the collectives work
    std::byte* memory = nullptr;             // where the collectives work on it
    std::byte* tensor = nullptr;             // where it was when it became ready
    std::size_t bytes = 0;
  };
  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));
  using program_type =
      decltype(std::declval<const Compression&>().prepare(std::declval<bucket_layout>(), program_world{}));
  using lane_type = decltype(std::declval<const Overlap&>().make_lane(std::declval<engine_work<engine>&>()));

  const std::string& name(slot which) const { return manifest_.entries()[which.index].name; }

  // ---- sealing ------------------------------------------------------------------------------------------------------

  /// Agrees with the other ranks, lays out the arena, plans, and broadcasts the parameters.
  arena_type seal() {
    arena_type arena = backend_.allocate_arena(0);
    share([&] {
      check_memory_spaces();
      if (size() > 1) {
        agree(backend_, describe_contract());
      }
      arena = place_slots();
      adopt(agree_on_plan({}));
      if (size() > 1) {
        broadcast_parameters();
      }
    });
    return arena;
  }

  void check_memory_spaces() const {
    for (const manifest_entry& entry : manifest_.entries()) {
      if (entry.gradient.space() != Backend::space) {
        violate("slot '" + entry.name + "' lies in another memory space than the backend works on");
      }
    }
  }

  /// What has to be the same on every rank.
  description describe_contract() const {
    description said;
    said.add("library version", version_string);
    describe_policies(said);
    for (std::size_t i = 0; i < manifest_.size(); ++i) {
      said.add("slot " + std::to_string(i), describe_slot(manifest_.entries()[i]));
    }
    return said;
  }

  void describe_policies(description& said) const {
    said.nest("bucketing", bucketing_);
    said.nest("compression", compression_);
    said.nest("overlap", overlap_);
  }

  arena_type place_slots() {
    const auto entries = manifest_.entries();
    const arena_layout layout = lay_out_arena(entries);
    arena_type arena = backend_.allocate_arena(layout.bytes);
    for (std::size_t i = 0; i < entries.size(); ++i) {
      slot_state& state = slots_[i];
      state.bytes = entries[i].gradient.bytes();
      gradient_bytes_ += state.bytes;
      if (entries[i].where == residence::adopted) {
        state.memory = entries[i].gradient.data();
        continue;
      }
      state.memory = arena.data() + layout.offsets[i];
      state.copied = entries[i].where == residence::own && state.bytes != 0;
      if (entries[i].where == residence::arena) {
        entries[i].gradient.rebind(state.memory);
      }
    }
    return arena;
  }

  void broadcast_parameters() {
    std::vector<extent> parameters;
    for (const manifest_entry& entry : manifest_.entries()) {
      if (entry.parameter) {
        append_extent(parameters, entry.parameter->data(), entry.parameter->bytes());
      }
    }
    run_collective(backend_, {.operation = collective::broadcast, .data = parameters});
  }

  // ---- planning -----------------------------------------------------------------------------------------------------

  bucket_plan agree_on_plan(std::span<const ready_event> observed) {
    std::vector<slot_size> sizes;
    for (const manifest_entry& entry : manifest_.entries()) {
      sizes.push_back({entry.gradient.kind(), entry.gradient.bytes()});
    }
    bucket_plan plan;
    if (rank() == 0) {
      plan = bucketing_.plan({sizes, observed});
      if (const std::string fault = plan_fault(plan, sizes); !fault.empty()) {
        throw sync_error({errc::plan_invalid, 0, static_cast<std::int64_t>(step_), -1, {},
                          "the bucketing policy's plan is wrong: " + fault});
      }
    }
    if (size() > 1) {
      plan = broadcast_plan(backend_, std::move(plan), sizes);
    }
    return plan;
  }

  void replan() {
    bucket_plan plan = agree_on_plan(std::span(ready_events_).first(ready_count_.load(std::memory_order_relaxed)));
    if (plan != plan_) {
      adopt(std::move(plan));
    }
  }

  /// Boundaries and order change; no gradient moves.
  void adopt(bucket_plan plan) {
    plan_ = std::move(plan);
    ++plan_version_;
    std::vector<bucket<program_type>> made(plan_.buckets.size());
    std::size_t scratch_bytes = 0;
    for (std::size_t b = 0; b < made.size(); ++b) {
      auto& each = made[b];
      each.kind = manifest_.entries()[plan_.buckets[b].front().index].gradient.kind();
      for (const slot which : plan_.buckets[b]) {
        const std::size_t elements = slots_[which.index].bytes / element_bytes(each.kind);
        slots_[which.index].bucket = static_cast<std::uint32_t>(b);
        each.members.push_back({which, each.elements, elements});
        append_extent(each.memory, slots_[which.index].memory, slots_[which.index].bytes);
        each.elements += elements;
      }
      each.program.emplace(compression_.prepare({each.kind, each.elements, each.members, each.memory}, {rank(), size()}));
      scratch_bytes = std::max(scratch_bytes, each.program->scratch_bytes());
    }
    buckets_ = std::move(made);
    scratch_.reset();
    scratch_.emplace(backend_.allocate_arena(size() > 1 ? scratch_bytes : 0));
    scratch_bytes_ = size() > 1 ? scratch_bytes : 0;
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
        start_record();
      } else {
        read_records();
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
      const slot_state& state = slots_[member.which.index];
      if (state.copied) {
        std::memcpy(state.tensor, state.memory, state.bytes);
      }
    }
    ++next_bucket_;
    stage_ = 0;
  }

  void launch(collective_request request) {
    if (!launched_) {
      launched_ = true;
      first_launched_ = clock::now();
    }
    request.plan_version = plan_version_;
    backend_.start(request);
    in_flight_ = true;
  }

  void start_record() {
    record_started_ = true;
    record_pieces_.clear();
    for (std::size_t r = 0; r <= records_.size(); ++r) {
      record_pieces_.push_back(r * sizeof(step_record));
    }
    step_record& own = records_[static_cast<std::size_t>(rank())];
    own = {};
    own.step = step_;
    own.non_finite = non_finite_;
    own.plan_version = plan_version_;
    record_extent_ = {reinterpret_cast<std::byte*>(records_.data()), records_.size() * sizeof(step_record), 0};
    launch({.operation = collective::all_gather, .data = {&record_extent_, 1}, .pieces = record_pieces_});
  }

  void read_records() {
    if (auto fault = record_fault(records_)) {
      throw sync_error(std::move(*fault));
    }
    non_finite_ = 0;
    for (const step_record& record : records_) {
      non_finite_ += record.non_finite;
    }
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  std::optional<failure> missing_gradients() const {
    std::optional<failure> cause;
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      if (buckets_[b].complete()) {
        continue;
      }
      for (const bucket_member& member : buckets_[b].members) {
        if (slots_[member.which.index].ready_in.load(std::memory_order_relaxed) != epoch_) {
          if (!cause) {
            cause = failure{errc::gradient_missing, rank(), static_cast<std::int64_t>(step_),
                            static_cast<std::int64_t>(b), {},
                            "not ready at the end of the step; every gradient has to become ready in every step"};
          }
          cause->slots.push_back(name(member.which));
        }
      }
    }
    return cause;
  }

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
          cause.slots.push_back(name(member.which));
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

  manifest manifest_;
  Backend backend_;
  Bucketing bucketing_;
  Compression compression_;
  Overlap overlap_;

  std::vector<slot_state> slots_;
  std::vector<bucket<program_type>> buckets_;
  bucket_plan plan_;
  std::uint32_t plan_version_ = 0;
  std::size_t gradient_bytes_ = 0;
  std::vector<ready_event> ready_events_;
  std::vector<step_record> records_;
  std::vector<std::size_t> record_pieces_;
  extent record_extent_;
  std::optional<arena_type> scratch_;
  std::size_t scratch_bytes_ = 0;
  sync_statistics statistics_;

  // The present step.
  std::mutex mutex_;
  bool open_ = false;
  bool observing_ = false;
  std::uint64_t step_ = 0;
  std::uint32_t epoch_ = 0;  // of `ready_in`; 0 is before the first step
  std::atomic<std::size_t> ready_count_{0};
  std::atomic<bool> closing_{false};   // the caller has ended the step: the record may go
  std::atomic<bool> finished_{false};  // the lane has ended the step
  std::size_t next_bucket_ = 0;
  int stage_ = 0;
  bool in_flight_ = false;
  bool record_started_ = false;
  bool launched_ = false;
  std::uint64_t non_finite_ = 0;
  std::optional<failure> failure_;
  std::uint64_t bytes_sent_before_ = 0;
  clock::time_point step_began_{};
  clock::time_point first_launched_{};
  clock::time_point last_completed_{};

  arena_type arena_;  // gradients: given up only with the engine
  engine_work<engine> work_;
  lane_type lane_;  // last: its thread uses all of the above
};

}  // namespace gradweave::detail
