/// @file
/// What a stream backend is: its collectives are ordered on streams of a device, and the host waits for none of them.
/// docs/reference/backend.md has the requirements.
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include <gradweave/backend/concept.hpp>

namespace gradweave {

/// Atom: `B::stream`: what collectives are ordered on, a handle that is copied.
template <class B>
concept backend_has_stream = std::copyable<typename B::stream>;

/// Atom: `enqueue(request, stream)` orders a collective after what is on the stream, and returns without waiting for the
/// device. The request is read before it returns, with the lists that it refers to; the memory that its extents point at
/// is used when the stream gets there. Throws sync_error.
template <class B>
concept backend_can_enqueue =
    requires(B& backend, const collective_request& request, typename B::stream on) { backend.enqueue(request, on); };

/// Atom: `check()` throws sync_error for what has failed since on this rank's device or its connections to others. It is
/// cheap and never waits.
template <class B>
concept backend_can_check = requires(B& backend) { backend.check(); };

/// Atom: `control()`: a host backend over the same ranks, which lives as long as this one. By it goes everything that the
/// host has to know. Where it has a `check()` too, which throws once another rank has failed or is gone, that is heard of
/// while the own device is still busy.
template <class B>
concept backend_has_control = requires(B& backend) {
  requires std::is_lvalue_reference_v<decltype(backend.control())>;
  requires host_backend<std::remove_reference_t<decltype(backend.control())>>;
};

/// A backend whose collectives are ordered on streams. Its `abort` also lets streams get past collectives that can't end.
template <class B>
concept stream_backend = backend_policy<B> && (B::execution == execution_model::stream) && backend_has_stream<B> &&
                         backend_can_enqueue<B> && backend_can_check<B> && backend_has_control<B>;

/// What a stream backend's control is.
template <stream_backend B>
using control_of = std::remove_reference_t<decltype(std::declval<B&>().control())>;

/// Says in one sentence which requirement of `stream_backend` B misses. Compiles for a stream backend.
template <class B>
consteval bool explain_stream_backend() {
  explain_backend<B>();
  if constexpr (backend_policy<B>) {
    static_assert(B::execution == execution_model::stream,
                  "backend: its execution is host, and this needs one that is ordered on streams");
  }
  static_assert(backend_has_stream<B>, "backend: a stream backend needs a type `stream`, a handle that can be copied");
  static_assert(backend_can_enqueue<B>, "backend: a stream backend needs enqueue(const collective_request&, stream)");
  static_assert(backend_can_check<B>, "backend: a stream backend needs check()");
  static_assert(
      backend_has_control<B>,
      "backend: a stream backend needs control(), returning a reference to a host backend over the same ranks");
  return stream_backend<B>;
}

}  // namespace gradweave
