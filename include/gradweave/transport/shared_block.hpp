/// @file
/// What a rank keeps in shared memory for the ranks of its host: a bell that they ring, and for each of them a mailbox and
/// what is lent. A process writes what is its own and the few words that are meant for it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/segment.hpp>

namespace gradweave {

/// Proves that two processes see the same memory: its owner tells it over another way.
using segment_proof = std::array<std::byte, 16>;

struct shared_bell {
  segment_proof proof;
  alignas(64) std::atomic<std::uint32_t> rung;  ///< by anybody who did something that the owner may wait for
  std::atomic<std::uint32_t> sleeping;          ///< by the owner: who rings has to wake it
};

/// From the owner of the block to one other rank.
struct shared_pair {
  static constexpr std::size_t mailbox_capacity = 4;
  static constexpr std::size_t pieces_max = 32;

  struct piece {
    std::uint64_t offset;
    std::uint64_t bytes;
  };

  alignas(64) std::atomic<std::uint64_t> posted;  // by the owner
  std::uint32_t lent_segment;                     // these three before it posts
  std::uint32_t lent_count;
  std::array<piece, pieces_max> lent;
  alignas(64) std::array<control_message, mailbox_capacity> mailbox;
  alignas(64) std::atomic<std::uint64_t> taken;       // by the other rank
  alignas(64) std::atomic<std::uint64_t> given_back;  // by the other rank

  bool post(const control_message& message) {
    const std::uint64_t count = posted.load(std::memory_order_relaxed);
    if (count - taken.load(std::memory_order_acquire) == mailbox_capacity) {
      return false;
    }
    mailbox[count % mailbox_capacity] = message;
    posted.store(count + 1, std::memory_order_release);
    return true;
  }

  bool is_empty() const { return posted.load(std::memory_order_acquire) == taken.load(std::memory_order_relaxed); }

  bool take(control_message& message) {
    if (is_empty()) {
      return false;
    }
    const std::uint64_t count = taken.load(std::memory_order_relaxed);
    message = mailbox[count % mailbox_capacity];
    taken.store(count + 1, std::memory_order_release);
    return true;
  }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

/// One rank's block, as its owner or another rank maps it.
class shared_block {
 public:
  shared_block() = default;

  /// Throws std::system_error.
  static shared_block create(int ranks, const segment_proof& proof) {
    shared_block made(segment::create(bytes_for(ranks)));
    ::new (made.memory_.data()) shared_bell{proof, {}, {}};
    for (int rank = 0; rank < ranks; ++rank) {
      ::new (made.memory_.data() + place_of(rank)) shared_pair{};
    }
    return made;
  }

  /// Throws std::system_error where it is no sealed segment. Not a block of so many ranks: `is_of` is false then.
  static shared_block adopt(descriptor memory) { return shared_block(segment::adopt(std::move(memory))); }

  explicit operator bool() const { return memory_.data() != nullptr; }

  bool is_of(int ranks, const segment_proof& proof) const {
    return memory_.size() == bytes_for(ranks) && bell().proof == proof;
  }

  int handle() const { return memory_.handle(); }
  void close_handle() { memory_.close_handle(); }

  shared_bell& bell() const { return *std::launder(reinterpret_cast<shared_bell*>(memory_.data())); }
  shared_pair& towards(int rank) const {
    return *std::launder(reinterpret_cast<shared_pair*>(memory_.data() + place_of(rank)));
  }

 private:
  explicit shared_block(segment memory) : memory_(std::move(memory)) {}

  static std::size_t place_of(int rank) {
    return sizeof(shared_bell) + static_cast<std::size_t>(rank) * sizeof(shared_pair);
  }
  static std::size_t bytes_for(int ranks) { return place_of(ranks); }

  segment memory_;
};

}  // namespace gradweave
