/// @file
/// The collectives of a step in their order: each bucket's, one bucket after another, and at last the step record. A
/// state machine that never blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/synchronizer/averager.hpp>
#include <gradweave/synchronizer/bucket_set.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/rank_table.hpp>
#include <gradweave/synchronizer/step_meter.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// Not thread-safe but for `count_down`. What it refers to outlives it.
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

  /// Takes over a valid plan, between steps.
  void adopt(bucket_plan plan, const Compression& compression) {
    buckets_.adopt(std::move(plan), gradients_, compression, {backend_.rank(), backend_.size(), average_.divisor()});
    scratch_bytes_ = backend_.size() > 1 ? buckets_.scratch_bytes() : 0;
    scratch_.reset();
    scratch_.emplace(backend_.allocate_arena(scratch_bytes_));
  }

  /// `samples` are what this rank's gradients are the mean of.
  void begin_step(std::uint64_t samples) {
    buckets_.begin_step();
    next_bucket_ = 0;
    stage_ = 0;
    non_finite_ = 0;
    own_samples_ = samples;
    phase_ = average_.is_weighted() ? phase::samples : phase::buckets;
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
      average_.prepare(current.kind, current.memory);
    }
    auto request = current.program->run(stage_, {scratch_->data(), scratch_bytes_});
    if (request) {
      ++stage_;
      launch(*request);
      return;
    }
    non_finite_ += current.program->non_finite();
    average_.complete(current.kind, current.memory);
    for (const bucket_member& member : current.members) {
      if (gradients_.is_ready(member.which)) {  // or it came as zeros, from nowhere
        gradients_.copy_back(member.which);
      }
    }
    ++next_bucket_;
    stage_ = 0;
  }

  void launch_record(step_record own) {
    own.non_finite = non_finite_;
    own.plan_version = buckets_.version();
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
  std::optional<arena_type> scratch_;
  std::size_t scratch_bytes_ = 0;

  // The present step.
  phase phase_ = phase::buckets;
  std::size_t next_bucket_ = 0;
  int stage_ = 0;
  bool in_flight_ = false;
  std::uint64_t own_samples_ = 1;
  std::uint64_t non_finite_ = 0;
  step_outcome outcome_;
};

}  // namespace gradweave::detail
