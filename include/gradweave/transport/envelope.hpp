/// @file
/// What every message of the rendezvous begins with: the protocol's name, what sort of message it is, how long it is.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include <gradweave/wire.hpp>

namespace gradweave::detail {

inline constexpr std::size_t envelope_bytes = 12;
inline constexpr std::size_t introduction_bytes_max = 2048;

/// In the order in which they are sent.
enum class message_kind : std::uint8_t {
  caller_nonce = 'n',
  host_nonce = 'N',
  caller_proof = 'p',
  host_proof = 'P',
  introduction = 'i',
  noted = 'k',  ///< the introduction is right, and the caller is to wait
  answer = 'a',
  arrived = 'r',  ///< the sender has come as far as all are to come before anybody goes on
};

struct envelope {
  message_kind kind;
  std::size_t body_bytes;
};

inline constexpr std::array<char, 7> protocol_name{'g', 'r', 'a', 'd', 'w', 'v', '2'};

inline std::vector<std::byte> in_envelope(message_kind kind, std::span<const std::byte> body) {
  byte_writer out;
  for (const char each : protocol_name) {
    out.number(static_cast<std::uint8_t>(each));
  }
  out.number(static_cast<std::uint8_t>(kind));
  out.number(static_cast<std::uint32_t>(body.size()));
  std::vector<std::byte> message(out.bytes().begin(), out.bytes().end());
  message.insert(message.end(), body.begin(), body.end());
  return message;
}

/// Nothing where this is no envelope, or the body is longer than `bytes_max`. What kind it is remains to be looked at.
inline std::optional<envelope> open_envelope(std::span<const std::byte, envelope_bytes> bytes, std::size_t bytes_max) {
  byte_reader in(bytes);
  bool ours = true;
  for (const char each : protocol_name) {
    ours &= in.number<std::uint8_t>() == static_cast<std::uint8_t>(each);
  }
  const auto kind = static_cast<message_kind>(in.number<std::uint8_t>());
  const std::size_t length = in.number<std::uint32_t>();
  return ours && length <= bytes_max ? std::optional(envelope{kind, length}) : std::nullopt;
}

}  // namespace gradweave::detail
