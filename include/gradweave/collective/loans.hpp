/// @file
/// What a rank lends its peers in a collective. Memory that can't be lent is copied to memory that can, and back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/collective/local_work.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

/// Over a transport that shares no memory there are none.
template <class Transport>
class loans {
 public:
  void begin() {}
  void lend(Transport&, int, const buffer_range&, bool) { violate("executor: this transport shares no memory"); }
  bool have_ended(Transport&, int) { return false; }
  void give_back(Transport&, int) {}
  std::span<const extent> borrowed(Transport&, int) const { return {}; }
};

template <transport_shares_memory Transport>
class loans<Transport> {
 public:
  /// Forgets the collective before.
  void begin() {
    staged_.clear();
    used_ = 0;
  }

  /// Lends `range` to `peer`, for reading or for writing too.
  void lend(Transport& transport, int peer, const buffer_range& range, bool to_write) {
    extents_.clear();
    for_each_piece(range.buffer, range.begin, range.bytes,
                   [&](std::byte* memory, std::size_t bytes) { append_extent(extents_, memory, bytes); });
    if (range.bytes != 0 && !transport.can_lend(extents_)) {
      std::byte* const copy = stage(transport, peer, range, to_write);
      extents_.assign(1, {copy, range.bytes, 0});
    }
    transport.lend(peer, extents_);
  }

  /// Whether `peer` has given back what was lent to it. Then what it wrote into a copy is put in its place.
  bool have_ended(Transport& transport, int peer) {
    if (!transport.given_back(peer)) {
      return false;
    }
    for (const staged_loan& loan : staged_) {
      if (loan.peer == peer && loan.to_write) {
        const extent copy{loan.copy, loan.range.bytes, 0};
        copy_range({{&copy, 1}, 0, loan.range.bytes}, loan.range);
      }
    }
    return true;
  }

  void give_back(Transport& transport, int lender) { transport.give_back(lender); }
  std::span<const extent> borrowed(Transport& transport, int lender) const { return transport.borrowed(lender); }

 private:
  struct staged_loan {
    int peer;
    bool to_write;
    buffer_range range;
    std::byte* copy;
  };
  using lendable_memory = decltype(std::declval<Transport&>().allocate(0));

  std::byte* stage(Transport& transport, int peer, const buffer_range& range, bool to_write) {
    for (const staged_loan& other : staged_) {
      if (!to_write && !other.to_write && other.range.begin == range.begin && other.range.bytes == range.bytes &&
          other.range.buffer.data() == range.buffer.data()) {
        return other.copy;
      }
    }
    std::byte* const copy = room_for(transport, range.bytes);
    const extent whole{copy, range.bytes, 0};
    copy_range(range, {{&whole, 1}, 0, range.bytes});
    staged_.push_back({peer, to_write, range, copy});
    return copy;
  }

  /// Memory of this collective. What was handed out before stays where it is.
  std::byte* room_for(Transport& transport, std::size_t bytes) {
    constexpr std::size_t line = 64;
    bytes = (bytes + line - 1) / line * line;
    if (blocks_.empty() || used_ + bytes > capacity_) {
      if (staged_.empty()) {
        blocks_.clear();  // nobody uses it any more: one larger block takes its place
      }
      capacity_ = std::max(2 * capacity_, bytes);
      blocks_.push_back(transport.allocate(capacity_));
      used_ = 0;
    }
    return blocks_.back().data() + std::exchange(used_, used_ + bytes);
  }

  std::vector<extent> extents_;
  std::vector<staged_loan> staged_;
  std::vector<lendable_memory> blocks_;
  std::size_t capacity_ = 0;
  std::size_t used_ = 0;
};

}  // namespace gradweave
