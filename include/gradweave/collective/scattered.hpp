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

}  // namespace gradweave
