/// @file
/// The collectives of a step in their order: each bucket's, one bucket after another, and at last the step record. A
/// state machine that never blocks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/synchronizer/averager.hpp>
#include <gradweave/synchronizer/bucket_set.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/rank_table.hpp>
#include <gradweave/synchronizer/step_meter.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// Not thread-safe but for `count_down` and `wait_for`. What it refers to outlives it.
template <host_backend Backend, compression_policy Compression>
class bucket_line {
 public:
  bucket_line(Backend& backend, gradient_table& gradients, step_meter& meter, averager average)
      : backend_(backend),
        gradients_(gradients),
        meter_(meter),
        average_(average),
        samples_(backend.rank(), backend.size()),
        records_(backend.rank(), backend.size()) {}

  /// From now on `told(slots)` learns of each bucket whose gradients have become averages, on the lane.
  void on_reduced(std::function<void(std::span<const slot>)> told) { on_reduced_ = std::move(told); }

  /// Throws sync_error for what it throws.
  void tell_reduced(std::span<const slot> slots) {
    if (on_reduced_ && !slots.empty()) {
      try {
        on_reduced_(slots);
      } catch (const std::exception& thrown) {
        throw sync_error({errc::aborted,
                          backend_.rank(),
                          -1,
                          -1,
                          {},
                          std::string("an exception in what on_reduced was given: ") + thrown.what()});
      }
    }
  }

  /// Where there are no peers: tells of all that was used.
  void tell_all_reduced() {
    for (std::size_t b = 0; on_reduced_ && b < buckets_.size(); ++b) {
      tell_reduced(ready_members(buckets_[b]));
    }
  }

  /// From the caller: sleeps until the gradient of `which` is an average here, or release_waiting() is called.
  void wait_for(slot which) const {
    for (std::size_t done = reduced_.load(std::memory_order_acquire); done <= buckets_.last_bucket_of(which);
         done = reduced_.load(std::memory_order_acquire)) {
      reduced_.wait(done, std::memory_order_acquire);
    }
  }

  /// At the end of a step, whatever end that is.
  void release_waiting() { count_reduced(SIZE_MAX); }

  /// Takes over a valid plan, between steps.
  void adopt(bucket_plan plan, const Compression& compression) {
    buckets_.adopt(std::move(plan), gradients_, compression,
                   {backend_.rank(), backend_.size(), average_.divisor(), steps_});
    scratch_bytes_ = backend_.size() > 1 ? buckets_.scratch_bytes() : 0;
    scratch_.reset();
    scratch_.emplace(backend_.allocate_arena(scratch_bytes_));
    members_.reserve(gradients_.size());
    meter_.reserve(buckets_.size());
  }

  /// `samples` are what this rank's gradients are the mean of.
  void begin_step(std::uint64_t samples) {
    buckets_.begin_step();
    ++steps_;
    next_bucket_ = 0;
    reduced_.store(0, std::memory_order_relaxed);
    stage_ = 0;
    non_finite_ = 0;
    own_samples_ = samples;
    phase_ = average_.is_weighted() ? phase::samples : phase::buckets;
    meter_.begin(backend_.payload_bytes_sent());
  }

  /// Counts `which` as ready. True where that completes its bucket. From any thread.
  bool count_down(slot which) { return buckets_.count_down(which); }

  /// Gets on until a collective is under way, or the next bucket is incomplete, or the step is over. `own` is this rank's
  /// record once it has ended the step, and null before.
  lane_status advance(const step_record* own) {
    for (;;) {
      if (in_flight_) {
        if (!backend_.poll()) {
          return lane_status::pending;
        }
        in_flight_ = false;
        meter_.arrive();
      }
      switch (phase_) {
        case phase::samples:
          phase_ = phase::weighing;
          launch(samples_.request(own_samples_));
          break;
        case phase::weighing:
          average_.weigh(own_samples_, samples_.values());
          phase_ = phase::buckets;
          break;
        case phase::buckets:
          if (next_bucket_ == buckets_.size()) {
            phase_ = phase::record;
          } else if (!buckets_[next_bucket_].complete()) {
            return lane_status::idle;
          } else {
            advance_bucket(buckets_[next_bucket_]);
          }
          break;
        case phase::record:
          if (own == nullptr) {
            return lane_status::idle;
          }
          phase_ = phase::end;
          launch_record(*own);
          break;
        case phase::end: outcome_ = outcome_of(records_.values()); return lane_status::finished;
      }
    }
  }

  /// What all ranks' records said, once the step is over.
  const step_outcome& outcome() const { return outcome_; }
  std::span<const step_record> records() const { return records_.values(); }

  /// Adds which bucket was under way.
  failure in_context(failure cause) const {
    if (next_bucket_ < buckets_.size() && cause.bucket < 0) {
      cause.bucket = static_cast<std::int64_t>(next_bucket_);
      for (const bucket_member& member : buckets_[next_bucket_].members) {
        cause.slots.push_back(gradients_.name(member.which));
      }
    }
    return cause;
  }

  const auto& buckets() const { return buckets_; }

 private:
  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));
  using program_type =
      decltype(std::declval<const Compression&>().prepare(std::declval<bucket_layout>(), program_world{}));

  enum class phase : std::uint8_t { samples, weighing, buckets, record, end };

  void advance_bucket(bucket<program_type>& current) {
    if (stage_ == 0) {
      gradweave::before_reduction(*current.program);
      meter_.bucket_begins(backend_.payload_bytes_sent());
      average_.prepare(current.kind, current.memory);
    }
    auto request = current.program->run(stage_, {scratch_->data(), scratch_bytes_});
    if (request) {
      ++stage_;
      if (current.program->scratch_bytes() == 0) {
        // It is other programs', which are idle: then it is not needed twice.
        request->scratch = {scratch_->data(), scratch_bytes_};
      }
      launch(*request);
      return;
    }
    non_finite_ += current.program->non_finite();
    average_.complete(current.kind, current.memory);
    gradweave::after_reduction(*current.program);
    for (const bucket_member& member : current.members) {
      if (gradients_.is_ready(member.which)) {
        gradients_.copy_back(member.which, {member.slot_begin, member.elements});
      }
    }
    meter_.bucket_ends(current.completed(), current.bytes(), backend_.payload_bytes_sent());
    tell_reduced(ready_members(current));
    ++next_bucket_;
    stage_ = 0;
    count_reduced(next_bucket_);
  }

  /// The slots of which nothing is missing once the bucket is there, but for those that came as zeros, from nowhere. Valid
  /// until the next call.
  std::span<const slot> ready_members(const bucket<program_type>& of) {
    members_.clear();
    for (const bucket_member& member : of.members) {
      const std::size_t bytes_there = (member.slot_begin + member.elements) * element_bytes(of.kind);
      if (gradients_.is_ready(member.which) && bytes_there == gradients_.range(member.which).size()) {
        members_.push_back(member.which);
      }
    }
    return members_;
  }

  void count_reduced(std::size_t buckets) {
    reduced_.store(buckets, std::memory_order_release);
    reduced_.notify_all();
  }

  void launch_record(step_record own) {
    own.non_finite = non_finite_;
    own.plan_version = buckets_.version();
    own.entered_us = to_record_us(meter_.since_last_end());
    launch(records_.request(own));
  }

  void launch(collective_request request) {
    meter_.launch();
    request.plan_version = buckets_.version();
    backend_.start(request);
    in_flight_ = true;
  }

  Backend& backend_;
  gradient_table& gradients_;
  step_meter& meter_;
  averager average_;
  bucket_set<program_type> buckets_;
  rank_table<std::uint64_t> samples_;
  rank_table<step_record> records_;
  std::function<void(std::span<const slot>)> on_reduced_;
  std::vector<slot> members_;  // those of a bucket that are told
  std::optional<arena_type> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::uint64_t steps_ = 0;  // that have begun

  // The present step.
  phase phase_ = phase::buckets;
  std::size_t next_bucket_ = 0;
  std::atomic<std::size_t> reduced_{0};  // buckets: what is waited for
  int stage_ = 0;
  bool in_flight_ = false;
  std::uint64_t own_samples_ = 1;
  std::uint64_t non_finite_ = 0;
  step_outcome outcome_;
};

}  // namespace gradweave::detail
