/// @file
/// One direction of a simulated connection: bytes in order, of which some are on their way and some have arrived.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/transport/concept.hpp>

namespace gradweave::testing::detail {

/// Positions count from the first byte ever sent. When bytes arrive is for the network to say.
class simulated_stream {
 public:
  /// At most `room_bytes` are on their way or not yet read.
  explicit simulated_stream(std::size_t room_bytes) : room_(room_bytes) {}

  /// Takes what there is room for; returns how many bytes.
  std::size_t write(std::span<const std::byte> bytes) {
    const std::size_t count = closed_ ? 0 : std::min(bytes.size(), room_ - (sent_ - read_));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    sent_ += count;
    return count;
  }

  /// Gives what has arrived; returns how many bytes.
  std::size_t read(std::span<std::byte> room) {
    const std::size_t count = std::min(room.size(), arrived_ - read_);
    std::copy_n(bytes_.begin(), count, room.begin());
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(count));
    read_ += count;
    return count;
  }

  std::size_t sent() const { return sent_; }
  std::size_t arrived() const { return arrived_; }

  /// What was sent before position `upto` is there, as far as it is not lost. Returns how much that is.
  std::size_t arrive(std::size_t upto) {
    const std::size_t before = arrived_;
    arrived_ = std::max(arrived_, std::min(upto, lost_from_));
    return arrived_ - before;
  }

  /// Of what is on its way all but `kept` bytes are lost.
  void cut(std::size_t kept) { lost_from_ = std::min(lost_from_, arrived_ + kept); }

  /// Nothing more can be sent.
  void close() { closed_ = true; }
  /// The receiver knows.
  void arrive_end() { end_arrived_ = true; }

  /// Everything is read, and nothing more comes.
  bool at_end() const { return end_arrived_ && read_ == arrived_; }

  /// The time of an arrival that could be at `earliest`: never before what was sent earlier.
  deadline arrival_after(deadline earliest) { return last_arrival_ = std::max(last_arrival_, earliest); }

 private:
  std::size_t room_;
  std::vector<std::byte> bytes_;  // from read_ on
  std::size_t sent_ = 0;
  std::size_t arrived_ = 0;
  std::size_t read_ = 0;
  std::size_t lost_from_ = SIZE_MAX;
  bool closed_ = false;
  bool end_arrived_ = false;
  deadline last_arrival_{};
};

}  // namespace gradweave::testing::detail
