/// @file
/// The collectives of a step in their order, enqueued on the lane's stream: each bucket's, one bucket after another, and at
/// last the step record. Nothing is waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/bucket_set.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/stream_watch.hpp>

namespace gradweave::detail {

/// Prepares programs for a stream where bucket_set asks for programs.
template <class Compression, device_kernels Kernels>
struct stream_preparer {
  const Compression& compression;
  const Kernels& kernels;

  auto prepare(const bucket_layout& layout, program_world world) const {
    return compression.prepare_stream(layout, world, kernels);
  }
};

/// Not thread-safe but for `mark_ready` and `count_down`. What it refers to outlives it.
template <stream_backend Backend, stream_device Device, class Compression>
  requires stream_compression<Compression, kernels_of<Device>>
class stream_line {
 public:
  using stream = typename Device::stream;

  stream_line(Backend& backend, const Device& device, const gradient_table& gradients, std::uint32_t divisor)
      : backend_(backend),
        device_(device),
        gradients_(gradients),
        divisor_(divisor),
        lane_(device.make_stream()),
        records_(backend.allocate_arena(size() * sizeof(step_record))),
        outcome_(backend.allocate_arena(sizeof(step_verdict) + sizeof(std::uint64_t))) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      ready_.push_back(device.make_event());
    }
    for (std::size_t r = 0; r <= size(); ++r) {
      record_pieces_.push_back(r * sizeof(step_record));
    }
    record_memory_ = {records_.data(), record_pieces_.back(), 0};
  }

  stream get() const { return lane_.get(); }
  const step_verdict* verdict() const { return reinterpret_cast<const step_verdict*>(outcome_.data()); }

  /// Takes over a valid plan, between steps, once the stream has got past the last use of the one before.
  void adopt(bucket_plan plan, const Compression& compression) {
    buckets_.adopt(std::move(plan), gradients_,
                   stream_preparer<Compression, kernels_of<Device>>{compression, device_.kernels()},
                   {backend_.rank(), backend_.size(), divisor_, steps_});
    scratch_bytes_ = size() > 1 ? buckets_.scratch_bytes() : 0;
    scratch_.reset();
    scratch_.emplace(backend_.allocate_arena(scratch_bytes_));
  }

  void begin_step() {
    buckets_.begin_step();
    ++steps_;
    next_bucket_ = 0;
  }

  /// What computes the gradient of `which` is on `on` by now. From any thread, before count_down.
  void mark_ready(slot which, stream on) { device_.record(ready_[which.index], on); }

  /// Counts `which` as ready. True where that completes its bucket. From any thread.
  bool count_down(slot which) { return buckets_.count_down(which); }

  /// Enqueues the buckets that are complete, in the plan's order; and the end of the step, whose verdict goes to `watch`, once
  /// `own` is given, which is this rank's record. True where the step is enqueued to its end.
  bool advance(const step_record* own, stream_watch<Backend, Device>& watch) {
    for (; next_bucket_ < buckets_.size(); ++next_bucket_) {
      if (!buckets_[next_bucket_].complete()) {
        return false;
      }
      enqueue(buckets_[next_bucket_]);
    }
    if (own == nullptr) {
      return false;
    }
    end(*own, watch);
    return true;
  }

  /// Enqueues a collective that belongs to no bucket.
  void enqueue(collective_request request) {
    request.plan_version = buckets_.version();
    backend_.enqueue(request, get());
  }

  /// Adds which bucket was being enqueued.
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
  using program_type = decltype(std::declval<const Compression&>().prepare_stream(
      std::declval<bucket_layout>(), program_world{}, std::declval<const kernels_of<Device>&>()));

  std::size_t size() const { return static_cast<std::size_t>(backend_.size()); }
  std::uint64_t* non_finite() const { return reinterpret_cast<std::uint64_t*>(outcome_.data() + sizeof(step_verdict)); }

  void enqueue(bucket<program_type>& current) {
    // Also where there is nobody to send to: what follows the step comes after everything that was ready in it.
    for (const bucket_member& member : current.members) {
      device_.wait(get(), ready_[member.which.index]);
    }
    const stream_context<kernels_of<Device>> context{
        device_.kernels(), get(), {scratch_->data(), scratch_bytes_}, non_finite()};
    for (int stage = 0; size() > 1; ++stage) {
      auto request = current.program->enqueue(stage, context);
      if (!request) {
        return;
      }
      enqueue(*request);
    }
  }

  void end(step_record own, stream_watch<Backend, Device>& watch) {
    own.plan_version = buckets_.version();
    auto* const records = reinterpret_cast<step_record*>(records_.data());
    device_.kernels().write_record(get(), {own, non_finite(), records + backend_.rank()});
    if (size() > 1) {
      enqueue({.operation = collective::all_gather, .data = {&record_memory_, 1}, .pieces = record_pieces_});
    }
    device_.kernels().judge_records(get(), {records, size(), reinterpret_cast<step_verdict*>(outcome_.data())});
    device_.copy_to_host(get(), watch.verdict(), outcome_.data(), sizeof(step_verdict));
    device_.record(watch.end(), get());
    watch.add(own);
  }

  Backend& backend_;
  const Device& device_;
  const gradient_table& gradients_;
  std::uint32_t divisor_;
  decltype(std::declval<const Device&>().make_stream()) lane_;
  mutable arena_type records_;  // by rank
  mutable arena_type outcome_;  // the verdict, and the count of what is not finite
  std::vector<std::size_t> record_pieces_;
  extent record_memory_;
  std::vector<typename Device::event> ready_;  // by slot
  bucket_set<program_type> buckets_;
  std::optional<arena_type> scratch_;
  std::size_t scratch_bytes_ = 0;
  std::uint64_t steps_ = 0;      // that have begun
  std::size_t next_bucket_ = 0;  // of the present one
};

}  // namespace gradweave::detail
