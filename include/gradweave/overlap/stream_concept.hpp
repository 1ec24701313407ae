/// @file
/// What an overlap policy is where buckets travel on a stream: it makes the device that the lane works with.
/// docs/reference/stream_lane.md has the requirements.
#pragma once

#include <chrono>
#include <concepts>
#include <utility>

#include <gradweave/device/device_concept.hpp>
#include <gradweave/overlap/concept.hpp>

namespace gradweave {

/// Atom: `make_device()` returns the stream_device.
template <class O>
concept overlap_makes_device = requires(const O& policy) {
  { policy.make_device() } -> stream_device;
};

/// Atom: `deadline()`: how long a step may go without any progress, in milliseconds.
template <class O>
concept overlap_has_deadline = requires(const O& policy) {
  { policy.deadline() } -> std::same_as<std::chrono::milliseconds>;
};

/// An overlap policy for streams. Its lane calls `work.advance()` from a thread of its own, also unasked from time to time
/// while that returns `pending`: the work then watches over what is under way, and enqueues what becomes complete.
template <class O>
concept stream_overlap_policy = overlap_policy<O> && overlap_makes_device<O> && overlap_has_deadline<O>;

template <stream_overlap_policy O>
using device_of = decltype(std::declval<const O&>().make_device());

/// Says in one sentence which requirement of `stream_overlap_policy` O misses. Compiles for one.
template <class O>
consteval bool explain_stream_overlap() {
  explain_overlap<O>();
  static_assert(overlap_makes_device<O>,
                "overlap: a stream backend needs an overlap policy that makes its device: make_device() must be const "
                "and return a stream_device, as overlap::cuda_stream does");
  static_assert(overlap_has_deadline<O>, "overlap: deadline() must be const and return std::chrono::milliseconds");
  return stream_overlap_policy<O>;
}

}  // namespace gradweave
