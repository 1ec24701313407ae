/// @file
/// What travels on a control connection: frames of a type, a length and a body. The decoder holds a few KiB, whatever a
/// peer claims, and refuses everything that is no frame.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/failure_message.hpp>
#include <gradweave/wire.hpp>

namespace gradweave {

enum class frame_type : std::uint8_t {
  message = 1,  ///< a control_message
  failure = 2,  ///< encode_failure: the job has ended; a peer says so once
};

inline constexpr std::size_t frame_header_bytes = 8;

/// The header of a frame: its type, three zeros, the body's length.
inline std::array<std::byte, frame_header_bytes> frame_header(frame_type type, std::size_t body_bytes) {
  const auto length = static_cast<std::uint32_t>(body_bytes);
  std::array<std::byte, frame_header_bytes> header{static_cast<std::byte>(type)};
  for (std::size_t i = 0; i < sizeof length; ++i) {
    header[4 + i] = static_cast<std::byte>(length >> (8 * i) & 0xff);
  }
  return header;
}

/// Takes bytes as they come and gives back what they say.
class frame_decoder {
 public:
  /// Where the next bytes belong; empty while messages wait to be taken.
  std::span<std::byte> room() { return std::span(buffer_).subspan(held_); }

  /// `bytes` more were written into room(). False once they are no frames: nothing more is taken from that peer.
  bool commit(std::size_t bytes) {
    held_ += bytes;
    return parse();
  }

  bool has_message() const { return taken_ != arrived_; }

  bool take(control_message& message) {
    if (!has_message()) {
      return false;
    }
    message = mailbox_[taken_++ % mailbox_capacity];
    parse();
    return true;
  }

  /// The next failure that the peer told.
  std::optional<failure> take_failure() {
    return failures_taken_ == failures_ ? std::nullopt : std::exchange(told_[failures_taken_++], std::nullopt);
  }

  /// How many failures one peer tells at most: a settlement has two rounds.
  static constexpr std::size_t failures_max = 2;

 private:
  static constexpr std::size_t mailbox_capacity = 4;

  bool parse() {
    while (!broken_ && held_ >= frame_header_bytes) {
      byte_reader header({buffer_.data(), frame_header_bytes});
      const auto type_and_zeros = header.number<std::uint32_t>();
      const std::size_t length = header.number<std::uint32_t>();
      const bool is_message =
          type_and_zeros == static_cast<std::uint32_t>(frame_type::message) && length == sizeof(control_message);
      const bool is_failure =
          type_and_zeros == static_cast<std::uint32_t>(frame_type::failure) && length <= failure_message_bytes_max;
      broken_ = !is_message && !is_failure;
      if (broken_ || held_ < frame_header_bytes + length) {
        break;
      }
      const auto body = std::span(buffer_).subspan(frame_header_bytes, length);
      if (is_message) {
        if (arrived_ - taken_ == mailbox_capacity) {
          break;
        }
        std::copy(body.begin(), body.end(), mailbox_[arrived_++ % mailbox_capacity].begin());
      } else {
        auto cause = failures_ == failures_max ? std::nullopt : decode_failure(body);
        broken_ = !cause;
        if (cause) {
          told_[failures_++] = std::move(cause);
        }
      }
      held_ -= frame_header_bytes + length;
      std::memmove(buffer_.data(), buffer_.data() + frame_header_bytes + length, held_);
    }
    return !broken_;
  }

  std::array<std::byte, frame_header_bytes + failure_message_bytes_max> buffer_;
  std::size_t held_ = 0;
  std::array<control_message, mailbox_capacity> mailbox_;
  std::size_t arrived_ = 0;
  std::size_t taken_ = 0;
  std::array<std::optional<failure>, failures_max> told_;
  std::size_t failures_ = 0;
  std::size_t failures_taken_ = 0;
  bool broken_ = false;
};

}  // namespace gradweave
