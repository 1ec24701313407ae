/// @file
/// A failure as a message between processes, and which of several failures is the story that all ranks tell.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include <gradweave/error.hpp>
#include <gradweave/wire.hpp>

namespace gradweave {

/// The longest message that encode_failure makes, in bytes.
inline constexpr std::size_t failure_message_bytes_max = 4096;

namespace detail {
inline constexpr std::size_t failure_slots_max = 8;
inline constexpr std::size_t failure_slot_bytes_max = 128;
inline constexpr std::size_t failure_detail_bytes_max = 2048;
}  // namespace detail

/// Long texts and lists are cut, so that the message keeps within its bound.
inline std::vector<std::byte> encode_failure(const failure& cause) {
  byte_writer out;
  out.number(static_cast<std::uint32_t>(cause.code));
  out.number(static_cast<std::uint32_t>(cause.rank));
  out.number(static_cast<std::uint64_t>(cause.step));
  out.number(static_cast<std::uint64_t>(cause.bucket));
  out.number(cause.collectives_completed);
  const std::size_t slots = std::min(cause.slots.size(), detail::failure_slots_max);
  out.number(static_cast<std::uint32_t>(slots));
  for (std::size_t i = 0; i < slots; ++i) {
    out.text(cause.slots[i], detail::failure_slot_bytes_max);
  }
  out.text(cause.detail, detail::failure_detail_bytes_max);
  return {out.bytes().begin(), out.bytes().end()};
}

/// Nothing where `message` is none that encode_failure made.
inline std::optional<failure> decode_failure(std::span<const std::byte> message) {
  byte_reader in(message);
  failure cause;
  cause.code = static_cast<errc>(in.number<std::uint32_t>());
  cause.rank = static_cast<int>(in.number<std::uint32_t>());
  cause.step = static_cast<std::int64_t>(in.number<std::uint64_t>());
  cause.bucket = static_cast<std::int64_t>(in.number<std::uint64_t>());
  cause.collectives_completed = in.number<std::uint64_t>();
  const std::size_t slots = in.number<std::uint32_t>();
  if (slots > detail::failure_slots_max) {
    return std::nullopt;
  }
  for (std::size_t i = 0; i < slots; ++i) {
    cause.slots.push_back(in.text(detail::failure_slot_bytes_max));
  }
  cause.detail = in.text(detail::failure_detail_bytes_max);
  const bool known = cause.code >= errc::manifest_mismatch && cause.code <= errc::internal;
  return in.complete() && known ? std::optional(cause) : std::nullopt;
}

/// Whether `a` is told rather than `b` where ranks found different causes at once: what a rank did before what others
/// missed of it, then the earlier collective, then the lower rank (of timeouts, one that names nobody comes last). The rest of it only makes the choice the same on all:
/// ranks that see one thing over their own connections say it in different words.
inline bool comes_before(const failure& a, const failure& b) {
  const auto order = [](const failure& cause) {
    const int consequence = cause.code == errc::timed_out ? 2 : cause.code == errc::peer_lost ? 1 : 0;
    const bool nobody = consequence == 2 && cause.rank < 0;
    return std::tuple(consequence, nobody, cause.collectives_completed, cause.rank, static_cast<int>(cause.code),
                      cause.step, cause.bucket, cause.slots, cause.detail);
  };
  return order(a) < order(b);
}

}  // namespace gradweave
