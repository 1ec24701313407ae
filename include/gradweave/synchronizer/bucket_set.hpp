/// @file
/// The buckets of the present plan: what is in each, how much of it is still missing, and the program that reduces it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>

namespace gradweave::detail {

/// What is prepared for a bucket: a stage program of a host, or one of a stream.
template <class P>
concept bucket_program = std::movable<P> && program_has_scratch<P>;

template <bucket_program Program>
struct bucket {
  element_kind kind = element_kind::float32;
  std::size_t elements = 0;
  std::vector<bucket_member> members;
  std::vector<extent> memory;
  std::optional<Program> program;

  /// Members that are not ready yet. Each `ready` writes its gradient, then counts down with acquire-release; who then
  /// acquires a zero therefore sees all gradients of the bucket.
  std::atomic<std::uint32_t> missing{0};

  /// When that was so, on the steady clock; 0 where it is not known yet.
  std::atomic<std::int64_t> completed_at{0};

  bool complete() const { return missing.load(std::memory_order_acquire) == 0; }

  std::chrono::steady_clock::time_point completed() const {
    return std::chrono::steady_clock::time_point(
        std::chrono::steady_clock::duration(completed_at.load(std::memory_order_relaxed)));
  }
  std::uint64_t bytes() const { return elements * element_bytes(kind); }
};

template <bucket_program Program>
class bucket_set {
 public:
  /// Takes over a valid plan: boundaries and order change, no gradient moves. `compression` is a policy, or what prepares in
  /// its place.
  template <class Compression>
    requires requires(const Compression& by, const bucket_layout& layout, program_world world) {
      { by.prepare(layout, world) } -> std::convertible_to<Program>;
    }
  void adopt(bucket_plan plan, const gradient_table& gradients, const Compression& compression, program_world world) {
    plan_ = std::move(plan);
    ++version_;
    scratch_bytes_ = 0;
    const std::vector<slot_size> sizes = gradients.sizes();
    std::vector<bucket<Program>> made(plan_.buckets.size());
    for_each_slice(plan_, sizes, [&](std::size_t b, slot which, slot_slice part) {
      bucket<Program>& each = made[b];
      each.kind = sizes[which.index].kind;
      const std::size_t width = element_bytes(each.kind);
      each.members.push_back({which, each.elements, part.elements, gradients.name(which), part.begin});
      append_extent(each.memory, gradients.memory(which) + part.begin * width, part.elements * width);
      each.elements += part.elements;
    });
    for (bucket<Program>& each : made) {
      each.program.emplace(compression.prepare({each.kind, each.elements, each.members, each.memory}, world));
      scratch_bytes_ = std::max(scratch_bytes_, each.program->scratch_bytes());
    }
    buckets_ = std::move(made);
    list_buckets_of(sizes.size());
  }

  void begin_step() {
    for (bucket<Program>& each : buckets_) {
      each.completed_at.store(0, std::memory_order_relaxed);
      each.missing.store(static_cast<std::uint32_t>(each.members.size()), std::memory_order_relaxed);
    }
  }

  /// Counts `which` as ready, with all its slices. True where that completes a bucket. From any thread.
  bool count_down(slot which) {
    bool completes = false;
    for (std::size_t i = listed_[which.index]; i != listed_[which.index + 1]; ++i) {
      bucket<Program>& its = buckets_[buckets_of_[i]];
      if (its.missing.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        its.completed_at.store(std::chrono::steady_clock::now().time_since_epoch().count(), std::memory_order_relaxed);
        completes = true;
      }
    }
    return completes;
  }

  /// The number of the bucket with which all of `which` has arrived.
  std::size_t last_bucket_of(slot which) const { return buckets_of_[listed_[which.index + 1] - 1]; }

  std::size_t size() const { return buckets_.size(); }
  bucket<Program>& operator[](std::size_t b) { return buckets_[b]; }
  const bucket<Program>& operator[](std::size_t b) const { return buckets_[b]; }
  const bucket_plan& plan() const { return plan_; }

  /// How many plans there have been: part of each collective, so that no two plans are mixed.
  std::uint32_t version() const { return version_; }

  /// What the program that needs most needs: one bucket is reduced at a time.
  std::size_t scratch_bytes() const { return scratch_bytes_; }

 private:
  void list_buckets_of(std::size_t slots) {
    listed_.assign(slots + 1, 0);
    for (const bucket<Program>& each : buckets_) {
      for (const bucket_member& member : each.members) {
        ++listed_[member.which.index + 1];
      }
    }
    std::partial_sum(listed_.begin(), listed_.end(), listed_.begin());
    std::vector<std::size_t> next = listed_;
    buckets_of_.resize(listed_.back());
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      for (const bucket_member& member : buckets_[b].members) {
        buckets_of_[next[member.which.index]++] = static_cast<std::uint32_t>(b);
      }
    }
  }

  bucket_plan plan_;
  std::uint32_t version_ = 0;
  std::vector<bucket<Program>> buckets_;
  std::vector<std::size_t> listed_;        // slot: where its buckets begin in the list below
  std::vector<std::uint32_t> buckets_of_;  // the one of a slot, or those of its slices in order; slot by slot
  std::size_t scratch_bytes_ = 0;
};

}  // namespace gradweave::detail
