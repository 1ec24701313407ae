/// @file
/// What a lane on a stream asks of a device's runtime: streams, events, copies to the host, and kernels. It is named
/// without any SDK. docs/reference/stream_lane.md has the requirements.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

#include <gradweave/device/concept.hpp>

namespace gradweave {

/// Atom: `D::stream`, a handle that is copied and compared.
template <class D>
concept device_has_stream = std::copyable<typename D::stream> && std::equality_comparable<typename D::stream>;

/// Atom: `enter()`: from now on the calling thread works with this device.
template <class D>
concept device_can_enter = requires(const D& device) { device.enter(); };

/// Atom: `make_stream()` returns a movable owner, whose `get()` is a stream that other streams do not wait for.
template <class D>
concept device_makes_streams = requires(const D& device) {
  { device.make_stream().get() } -> std::same_as<typename D::stream>;
  requires std::movable<decltype(device.make_stream())>;
};

/// Atom: `make_event()` returns a `D::event`, a movable owner.
template <class D>
concept device_makes_events = std::movable<typename D::event> && requires(const D& device) {
  { device.make_event() } -> std::same_as<typename D::event>;
};

/// Atoms: `record(event, stream)` marks what is on the stream now; `wait(stream, event)` makes the stream wait for what the
/// event marks now, also where the event is recorded again later; `is_reached(event)` says without waiting whether that is
/// over. An event never recorded is reached. From any thread.
template <class D>
concept device_can_record =
    requires(const D& device, typename D::event& event, typename D::stream on) { device.record(event, on); };
template <class D>
concept device_can_wait =
    requires(const D& device, typename D::stream on, const typename D::event& event) { device.wait(on, event); };
template <class D>
concept device_can_query = requires(const D& device, const typename D::event& event) {
  { device.is_reached(event) } -> std::same_as<bool>;
};

/// Atom: `allocate_pinned(bytes)` returns a movable owner, with `data()`, of zeroed host memory that copies go to.
template <class D>
concept device_has_pinned_memory = requires(const D& device, std::size_t bytes) {
  { device.allocate_pinned(bytes).data() } -> std::same_as<std::byte*>;
  requires std::movable<decltype(device.allocate_pinned(bytes))>;
};

/// Atom: `copy_to_host(stream, pinned, memory, bytes)` copies when the stream gets there.
template <class D>
concept device_can_copy = requires(const D& device, typename D::stream on, std::byte* pinned, const std::byte* memory,
                                   std::size_t bytes) { device.copy_to_host(on, pinned, memory, bytes); };

/// Atom: `synchronize(stream)` returns once everything on the stream is over: before memory is given back.
template <class D>
concept device_can_synchronize = requires(const D& device, typename D::stream on) { device.synchronize(on); };

/// Atom: `kernels()`: the device_kernels whose streams are this device's.
template <class D>
concept device_has_kernels = requires(const D& device) {
  requires std::is_lvalue_reference_v<decltype(device.kernels())>;
  requires device_kernels<std::remove_cvref_t<decltype(device.kernels())>>;
  requires std::same_as<typename std::remove_cvref_t<decltype(device.kernels())>::stream, typename D::stream>;
};

/// Nothing but `synchronize` waits for the device. A failing device throws sync_error with its own words.
template <class D>
concept stream_device =
    std::movable<D> && device_has_stream<D> && device_can_enter<D> && device_makes_streams<D> &&
    device_makes_events<D> && device_can_record<D> && device_can_wait<D> && device_can_query<D> &&
    device_has_pinned_memory<D> && device_can_copy<D> && device_can_synchronize<D> && device_has_kernels<D>;

template <stream_device D>
using kernels_of = std::remove_cvref_t<decltype(std::declval<const D&>().kernels())>;

/// Says in one sentence which requirement of `stream_device` D misses. Compiles for a model of it.
template <class D>
consteval bool explain_stream_device() {
  static_assert(std::movable<D>, "stream_device: it must be movable");
  static_assert(device_has_stream<D>, "stream_device: add a type `stream`, a handle that can be copied and compared");
  static_assert(device_can_enter<D>, "stream_device: enter() must be const");
  static_assert(device_makes_streams<D>,
                "stream_device: make_stream() must be const and return a movable owner whose get() is a stream");
  static_assert(device_makes_events<D>,
                "stream_device: make_event() must be const and return `event`, which must be movable");
  static_assert(device_can_record<D>, "stream_device: record(event&, stream) must be const");
  static_assert(device_can_wait<D>, "stream_device: wait(stream, const event&) must be const");
  static_assert(device_can_query<D>, "stream_device: is_reached(const event&) must be const and return bool");
  static_assert(device_has_pinned_memory<D>,
                "stream_device: allocate_pinned(bytes) must be const and return a movable owner whose data() is "
                "std::byte*");
  static_assert(device_can_copy<D>,
                "stream_device: copy_to_host(stream, byte* pinned, const byte* memory, bytes) must be const");
  static_assert(device_can_synchronize<D>, "stream_device: synchronize(stream) must be const");
  static_assert(device_has_kernels<D>,
                "stream_device: kernels() must be const and return a reference to device_kernels on the same streams");
  return stream_device<D>;
}

}  // namespace gradweave
