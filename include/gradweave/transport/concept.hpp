/// @file
/// What a transport is: it moves bytes between two ranks and never blocks, except in `wait`.
/// docs/reference/transport.md has the requirements.
#pragma once

#include <array>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

using deadline = std::chrono::steady_clock::time_point;

/// A small message beside the payload. Its meaning is the executor's.
using control_message = std::array<std::byte, 64>;

/// Atom: `rank()` and `size()`.
template <class T>
concept transport_has_rank = requires(const T& transport) {
  { transport.rank() } -> std::same_as<int>;
  { transport.size() } -> std::same_as<int>;
};

/// Atom: `try_send(peer, bytes)` takes as many bytes as fit, possibly none, and returns how many.
template <class T>
concept transport_can_send = requires(T& transport, int peer, std::span<const std::byte> bytes) {
  { transport.try_send(peer, bytes) } -> std::same_as<std::size_t>;
};

/// Atom: `try_receive(peer, room)` returns how many bytes it wrote, possibly none. Bytes of a pair arrive in order.
template <class T>
concept transport_can_receive = requires(T& transport, int peer, std::span<std::byte> room) {
  { transport.try_receive(peer, room) } -> std::same_as<std::size_t>;
};

/// Atom: `try_send_control(peer, message)` and `try_receive_control(peer, message)`, false where there is no room or
/// nothing there. Control messages overtake no other control message of the pair.
template <class T>
concept transport_has_control = requires(T& transport, int peer, const control_message& out, control_message& in) {
  { transport.try_send_control(peer, out) } -> std::same_as<bool>;
  { transport.try_receive_control(peer, in) } -> std::same_as<bool>;
};

/// Atom: `peer_closed(peer)`: the peer is gone and everything that it sent has been received.
template <class T>
concept transport_sees_close = requires(T& transport, int peer) {
  { transport.peer_closed(peer) } -> std::same_as<bool>;
};

/// Atom: `abort(failure)`, from any thread, tells all ranks; the first cause wins and is returned. `aborted()` is that
/// cause, or null.
template <class T>
concept transport_can_abort = requires(T& transport, failure cause) {
  { transport.abort(cause) } -> std::same_as<failure>;
  { transport.aborted() } -> std::same_as<const failure*>;
};

/// Atom: `events()` changes whenever something may have become possible; `wait(seen, until)` sleeps while it equals
/// `seen`, at most until the deadline.
template <class T>
concept transport_can_wait = requires(T& transport, std::uint64_t seen, deadline until) {
  { transport.events() } -> std::same_as<std::uint64_t>;
  transport.wait(seen, until);
};

/// Atom: `now()`: the clock that deadlines of `wait` are given by. A simulated transport has one of its own.
template <class T>
concept transport_has_clock = requires(const T& transport) {
  { transport.now() } -> std::same_as<deadline>;
};

/// Atom: `payload_bytes_sent()`, control messages and headers not counted.
template <class T>
concept transport_counts_bytes = requires(const T& transport) {
  { transport.payload_bytes_sent() } -> std::same_as<std::uint64_t>;
};

/// Optional: `try_send_pieces(peer, pieces)` and `try_receive_pieces(peer, pieces)` do the same with memory in several
/// pieces, at most pieces_max, in one go.
template <class T>
concept transport_takes_pieces = requires(T& transport, int peer, std::span<const std::span<const std::byte>> out,
                                          std::span<const std::span<std::byte>> in) {
  { transport.try_send_pieces(peer, out) } -> std::same_as<std::size_t>;
  { transport.try_receive_pieces(peer, in) } -> std::same_as<std::size_t>;
};
inline constexpr std::size_t pieces_max = 16;

/// Optional: ranks that share memory. `memory_group(rank)` is any number that ranks which share memory have in common, and
/// no others; all ranks agree on it. `allocate(bytes)` returns an owner of zeroed memory that can be lent, with `data()`;
/// `can_lend(memory)` tells whether this memory can. `lend(peer, memory)` lends it, before the message that lets the peer
/// know; then `borrowed(rank)` is where it lies for the peer, until it calls `give_back(rank)`. `given_back(peer)` tells
/// whether everything lent to a peer has been given back. What was written before a call is seen after its counterpart.
template <class T>
concept transport_shares_memory =
    requires(T& transport, const T& constant, int peer, std::span<const extent> memory, std::size_t bytes) {
      { constant.memory_group(peer) } -> std::same_as<int>;
      { transport.allocate(bytes).data() } -> std::same_as<std::byte*>;
      { transport.can_lend(memory) } -> std::same_as<bool>;
      transport.lend(peer, memory);
      { transport.borrowed(peer) } -> std::same_as<std::span<const extent>>;
      transport.give_back(peer);
      { transport.given_back(peer) } -> std::same_as<bool>;
    };

/// Collects what each rank gives, in rank order, on all ranks: what a transport is helped with while it makes another.
struct gather_archetype {
  void operator()(std::span<const std::byte>, std::span<std::byte>) const {}
};

/// Optional: transports between some of the ranks. `subgroup(members, gather)`, which all ranks call at once, returns this
/// rank's end of one between `members`, among whom it is, in their order, or nothing where there are none. `gather(own,
/// all)` may be called, equally often on all ranks. `tell(failure)` is `abort` that does not wait for anybody's answer.
template <class T>
concept transport_makes_groups =
    requires(T& transport, std::span<const int> members, gather_archetype& gather, failure cause) {
      { transport.subgroup(members, gather) } -> std::same_as<std::optional<T>>;
      transport.tell(cause);
    };

template <class T>
concept byte_transport =
    transport_has_rank<T> && transport_can_send<T> && transport_can_receive<T> && transport_has_control<T> &&
    transport_sees_close<T> && transport_can_abort<T> && transport_can_wait<T> && transport_has_clock<T> &&
    transport_counts_bytes<T> && std::movable<T>;

/// Says in one sentence which requirement of `byte_transport` T misses. Compiles for a transport.
template <class T>
consteval bool explain_transport() {
  static_assert(transport_has_rank<T>, "transport: rank() and size() must exist and return int");
  static_assert(transport_can_send<T>, "transport: try_send(int, span<const byte>) must return std::size_t");
  static_assert(transport_can_receive<T>, "transport: try_receive(int, span<byte>) must return std::size_t");
  static_assert(transport_has_control<T>,
                "transport: try_send_control and try_receive_control must exist and return bool");
  static_assert(transport_sees_close<T>, "transport: peer_closed(int) must exist and return bool");
  static_assert(transport_can_abort<T>,
                "transport: abort(failure) must return the first failure, aborted() a pointer to it or null");
  static_assert(transport_can_wait<T>, "transport: events() and wait(seen, deadline) must exist");
  static_assert(transport_has_clock<T>, "transport: now() must be const and return deadline");
  static_assert(transport_counts_bytes<T>, "transport: payload_bytes_sent() must exist and return std::uint64_t");
  static_assert(std::movable<T>, "transport: it must be movable");
  return byte_transport<T>;
}

}  // namespace gradweave
