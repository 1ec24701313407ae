/// @file
/// What a rank tells its peers when it enters a collective, so that a mismatch is found before any payload moves.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

/// How many elements a rank exchanges with one peer.
struct exchanged_elements {
  std::size_t expected = 0;  ///< to be received from the peer
  std::size_t lent = 0;      ///< to the peer
  std::size_t borrowed = 0;  ///< used of what the peer lends
};

/// "Collective `sequence` is open here, and I expect `expected` elements of you."
struct opening {
  std::uint64_t sequence = 0;
  std::uint64_t elements = 0;  ///< of `data`; 0 for an all-to-all, where it differs between ranks
  std::uint64_t expected = 0;  ///< from the receiver of this message by its sender
  std::uint64_t lent = 0;      ///< to the receiver of this message by its sender
  std::uint64_t borrowed = 0;  ///< from the receiver of this message by its sender
  std::uint32_t plan_version = 0;
  std::uint32_t divisor = 1;
  std::int32_t root = 0;
  collective operation = collective::barrier;
  element_kind kind = element_kind::uint8;
  reduction_operation reduce = reduction_operation::sum;
  std::uint8_t unused = 0;

  friend bool operator==(const opening&, const opening&) = default;

  static opening of(const collective_request& request, std::uint64_t sequence, const exchanged_elements& with) {
    opening entered;
    entered.sequence = sequence;
    entered.elements =
        request.operation == collective::all_to_all ? 0 : total_bytes(request.data) / element_bytes(request.kind);
    entered.expected = with.expected;
    entered.lent = with.lent;
    entered.borrowed = with.borrowed;
    entered.plan_version = request.plan_version;
    entered.divisor = request.reduce.divisor;
    entered.root = request.root;
    entered.operation = request.operation;
    entered.kind = request.kind;
    entered.reduce = request.reduce.operation;
    return entered;
  }

  control_message encode() const {
    static_assert(sizeof(opening) <= sizeof(control_message));
    static_assert(std::endian::native == std::endian::little, "openings travel in little-endian byte order");
    control_message message{};
    std::memcpy(message.data(), this, sizeof(opening));
    return message;
  }

  static opening decode(const control_message& message) {
    opening decoded;
    std::memcpy(&decoded, message.data(), sizeof(opening));
    return decoded;
  }
};

/// "all_reduce of 1000 float32 elements (collective 7, plan 0)".
inline std::string to_string(const opening& entered) {
  std::string text(to_string(entered.operation));
  const std::uint64_t exchanged = std::max({entered.expected, entered.lent, entered.borrowed});
  if (const std::uint64_t count = entered.elements != 0 ? entered.elements : exchanged; count != 0) {
    text += " of " + std::to_string(count) + " " + std::string(element_name(entered.kind)) + " elements";
  }
  text += " (collective " + std::to_string(entered.sequence);
  if (entered.operation == collective::broadcast) {
    text += ", root " + std::to_string(entered.root);
  }
  return text + ", plan " + std::to_string(entered.plan_version) + ")";
}

}  // namespace gradweave
