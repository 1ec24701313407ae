/// @file
/// Receiving and reducing: payload goes through a staging buffer, from which it is reduced while it is in cache.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

/// How far a range has been received and reduced.
struct reduced_so_far {
  std::size_t bytes = 0;
  std::array<std::byte, 8> partial{};  ///< of an element that has not arrived whole
  std::size_t partial_bytes = 0;
};

/// The staging buffer. Several receptions may use it by turns.
class reducing_receiver {
 public:
  /// Receives `piece_bytes` at once.
  explicit reducing_receiver(std::size_t piece_bytes) : staging_(piece_bytes) {}

  /// Goes on receiving from `peer` what is reduced into `range`. True once all is.
  template <byte_transport Transport>
  bool receive_rest(Transport& transport, int peer, reduction_operation operation, element_kind kind,
                    const buffer_range& range, reduced_so_far& done) {
    while (done.bytes != range.bytes) {
      const std::size_t held = done.partial_bytes;
      std::memcpy(staging_.data(), done.partial.data(), held);
      const std::size_t room = std::min(staging_.size(), range.bytes - done.bytes) - held;
      const std::size_t arrived = transport.try_receive(peer, {staging_.data() + held, room});
      if (arrived == 0) {
        return false;
      }
      const std::size_t available = held + arrived;
      const std::size_t whole = available / element_bytes(kind) * element_bytes(kind);
      std::size_t reduced = 0;
      for_each_piece(range.buffer, range.begin + done.bytes, whole, [&](std::byte* memory, std::size_t count) {
        reduce_into(operation, kind, memory, staging_.data() + reduced, count / element_bytes(kind));
        reduced += count;
      });
      done.bytes += whole;
      done.partial_bytes = available - whole;
      std::memcpy(done.partial.data(), staging_.data() + whole, done.partial_bytes);
    }
    return true;
  }

 private:
  std::vector<std::byte> staging_;
};

}  // namespace gradweave
