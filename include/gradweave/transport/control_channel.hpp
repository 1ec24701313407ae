/// @file
/// One peer's control connection: what waits to go out, what has come in, and whether it has closed. It does no input
/// or output by itself, so sockets and simulated streams share it.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_frames.hpp>

namespace gradweave {

/// What one attempt to read or write has done. Nothing, and not closed: it would have blocked.
struct io_result {
  std::size_t bytes = 0;
  bool closed = false;
  bool drained = false;  ///< of a read: it is known that nothing is left
};

/// The connection itself: it takes and gives as many bytes as go without waiting.
template <class S>
concept control_stream = requires(S& stream, std::span<const std::byte> bytes, std::span<std::byte> room) {
  { stream.write(bytes) } -> std::same_as<io_result>;
  { stream.read(room) } -> std::same_as<io_result>;
};

class control_channel {
 public:
  /// False where what was sent before has not gone out: then nothing of this message has. A failure always goes, behind
  /// what waits.
  template <control_stream Stream>
  bool send(frame_type type, std::span<const std::byte> body, Stream&& stream) {
    flush(stream);
    if (!unsent_.empty() && type == frame_type::message) {
      return false;
    }
    const auto header = frame_header(type, body.size());
    const std::size_t waiting = unsent_.size();
    unsent_.resize(waiting + header.size() + body.size());
    std::ranges::copy(body, std::ranges::copy(header, unsent_.begin() + static_cast<std::ptrdiff_t>(waiting)).out);
    flush(stream);
    return true;
  }

  /// Sends what waits, as far as there is room.
  template <control_stream Stream>
  void flush(Stream&& stream) {
    while (!unsent_.empty() && !closed_) {
      const io_result done = stream.write(std::span<const std::byte>(unsent_));
      unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(done.bytes));
      if (done.bytes == 0) {
        return;  // closed for writing: what the peer sent before it went may still be there to be read
      }
    }
  }

  /// Takes in what has come.
  template <control_stream Stream>
  void receive(Stream&& stream) {
    stalled_ = false;
    while (!closed_) {
      const auto room = arrived_.room();
      if (room.empty()) {
        stalled_ = true;
        return;
      }
      const io_result done = stream.read(room);
      if (done.bytes == 0 && !done.closed) {
        return;
      }
      closed_ = done.closed || !arrived_.commit(done.bytes);
      if (done.drained) {
        return;
      }
    }
  }

  /// More may have come than there was room for.
  bool stalled() const { return stalled_; }

  /// The next message, if there is one.
  template <control_stream Stream>
  bool take(control_message& message, Stream&& stream) {
    const bool taken = arrived_.take(message);
    if (stalled_) {
      receive(stream);
    }
    return taken || arrived_.take(message);
  }

  bool has_message() const { return arrived_.has_message(); }
  std::optional<failure> take_failure() { return arrived_.take_failure(); }

  /// The peer has closed it, or sent what is no frame: nothing more comes.
  bool closed() const { return closed_; }

 private:
  frame_decoder arrived_;
  bool stalled_ = false;  // more may have come than `arrived_` has room for
  bool closed_ = false;
  std::vector<std::byte> unsent_;  // what did not go out at once
};

}  // namespace gradweave
