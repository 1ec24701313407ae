/// @file
/// Sending from and receiving into memory in several pieces, by as few calls as the transport allows.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <gradweave/extent.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

/// Sends what goes at once of [offset, offset + bytes), from where it lies. How many bytes went.
template <byte_transport Transport>
std::size_t send_some(Transport& transport, int peer, std::span<const extent> from, std::size_t offset,
                      std::size_t bytes) {
  if constexpr (transport_takes_pieces<Transport>) {
    std::array<std::span<const std::byte>, pieces_max> pieces;
    const std::size_t count = first_pieces<const std::byte>(from, offset, bytes, pieces);
    return transport.try_send_pieces(peer, std::span<const std::span<const std::byte>>(pieces).first(count));
  } else {
    return transport.try_send(peer, first_piece(from, offset, bytes));
  }
}

/// Receives what is there for [offset, offset + bytes), to where it belongs. How many bytes came.
template <byte_transport Transport>
std::size_t receive_some(Transport& transport, int peer, std::span<const extent> to, std::size_t offset,
                         std::size_t bytes) {
  if constexpr (transport_takes_pieces<Transport>) {
    std::array<std::span<std::byte>, pieces_max> pieces;
    const std::size_t count = first_pieces<std::byte>(to, offset, bytes, pieces);
    return transport.try_receive_pieces(peer, std::span<const std::span<std::byte>>(pieces).first(count));
  } else {
    return transport.try_receive(peer, first_piece(to, offset, bytes));
  }
}

/// Goes on with a range of which `done` bytes are done, as far as `move(offset, bytes)`, which returns how many it moved,
/// gets. True once all are.
template <class Move>
bool move_rest(const buffer_range& range, std::size_t& done, Move&& move) {
  while (done != range.bytes) {
    const std::size_t moved = move(range.begin + done, range.bytes - done);
    if (moved == 0) {
      return false;
    }
    done += moved;
  }
  return true;
}

template <byte_transport Transport>
bool send_rest(Transport& transport, int peer, const buffer_range& from, std::size_t& done) {
  return move_rest(from, done, [&](std::size_t offset, std::size_t bytes) {
    return send_some(transport, peer, from.buffer, offset, bytes);
  });
}

template <byte_transport Transport>
bool receive_rest(Transport& transport, int peer, const buffer_range& to, std::size_t& done) {
  return move_rest(to, done, [&](std::size_t offset, std::size_t bytes) {
    return receive_some(transport, peer, to.buffer, offset, bytes);
  });
}

}  // namespace gradweave
