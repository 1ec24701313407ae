/// @file
/// A transport between the threads of one process: a byte ring and a mailbox for each ordered pair of ranks, and memory
/// that they lend each other.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/host_memory.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

namespace detail {

/// Bytes from one thread to another. The writer publishes with a release store of `written`, the reader frees room with
/// a release store of `read`; each acquires the other's.
class byte_ring {
 public:
  static constexpr std::size_t capacity = std::size_t{256} << 10;

  std::size_t write(std::span<const std::byte> bytes) {
    const std::size_t begin = written_.load(std::memory_order_relaxed);
    const std::size_t count = std::min(bytes.size(), capacity - (begin - read_.load(std::memory_order_acquire)));
    const std::size_t first = std::min(count, capacity - begin % capacity);
    std::copy_n(bytes.data(), first, memory_.get() + begin % capacity);
    std::copy_n(bytes.data() + first, count - first, memory_.get());
    written_.store(begin + count, std::memory_order_release);
    return count;
  }

  std::size_t read(std::span<std::byte> room) {
    const std::size_t begin = read_.load(std::memory_order_relaxed);
    const std::size_t count = std::min(room.size(), written_.load(std::memory_order_acquire) - begin);
    const std::size_t first = std::min(count, capacity - begin % capacity);
    std::copy_n(memory_.get() + begin % capacity, first, room.data());
    std::copy_n(memory_.get(), count - first, room.data() + first);
    read_.store(begin + count, std::memory_order_release);
    return count;
  }

  bool empty() const { return written_.load(std::memory_order_acquire) == read_.load(std::memory_order_relaxed); }

 private:
  alignas(64) std::atomic<std::size_t> written_{0};
  alignas(64) std::atomic<std::size_t> read_{0};
  std::unique_ptr<std::byte[]> memory_{new std::byte[capacity]};
};

/// Counts events for one rank and wakes the thread that sleeps on them.
class doorbell {
 public:
  std::uint64_t count() const { return count_.load(std::memory_order_seq_cst); }

  void ring() {
    count_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) {
      // Taking the lock orders this after the sleeper's last look at the count.
      std::lock_guard lock(mutex_);
      wake_.notify_all();
    }
  }

  void wait(std::uint64_t seen, deadline until) {
    for (int i = 0; i < spins; ++i) {
      if (count() != seen) {
        return;
      }
      // Ranks may outnumber cores: give the one that is waited for a chance to run.
      std::this_thread::yield();
    }
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait_until(lock, until, [&] { return count() != seen; });
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }

 private:
  static constexpr int spins = 50;

  std::atomic<std::uint64_t> count_{0};
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

/// Memory that ranks of the process lend each other. It lives as long as anybody may touch it: its owner, or a peer that
/// it was lent to and that has not noticed yet that the owner has given the job up.
struct lendable_block {
  explicit lendable_block(std::size_t bytes) : memory(bytes), size(bytes) {}
  host_memory memory;
  std::size_t size;
};

/// What the ranks of one process share.
class in_process_network {
 public:
  explicit in_process_network(int size) : size_(static_cast<std::size_t>(size)), bells_(size_), closed_(size_) {
    links_.reserve(size_ * size_);
    for (std::size_t i = 0; i < size_ * size_; ++i) {
      links_.push_back(i % (size_ + 1) == 0 ? nullptr : std::make_unique<link>());
    }
  }

  /// From one rank to another.
  struct link {
    /// Holds more than an executor ever leaves unread: one opening a collective, and no second before payload has gone
    /// the other way.
    static constexpr std::size_t mailbox_capacity = 4;

    byte_ring payload;
    std::array<control_message, mailbox_capacity> mailbox;
    alignas(64) std::atomic<std::size_t> posted{0};
    alignas(64) std::atomic<std::size_t> taken{0};

    std::shared_ptr<const lendable_block> lent_block;  // the lender writes these three before it posts its opening
    std::vector<extent> lent;
    std::uint64_t loans = 0;
    alignas(64) std::atomic<std::uint64_t> given_back{0};
  };

  int size() const { return static_cast<int>(size_); }
  link& between(int from, int to) {
    return *links_[static_cast<std::size_t>(from) * size_ + static_cast<std::size_t>(to)];
  }
  doorbell& bell(int rank) { return bells_[static_cast<std::size_t>(rank)]; }
  std::atomic<bool>& closed(int rank) { return closed_[static_cast<std::size_t>(rank)]; }

  void ring_all() {
    for (doorbell& bell : bells_) {
      bell.ring();
    }
  }

  failure abort(failure cause) {
    {
      std::lock_guard lock(mutex_);
      if (!cause_) {
        cause_ = std::move(cause);
        aborted_.store(&*cause_, std::memory_order_release);
      }
    }
    ring_all();
    return *aborted();
  }
  const failure* aborted() const { return aborted_.load(std::memory_order_acquire); }

  /// The network of a group of `size` ranks, whom the same `name` is known to, and nobody else: who comes first makes it.
  std::shared_ptr<in_process_network> group(std::pair<std::uint64_t, int> name, int size) {
    std::lock_guard lock(mutex_);
    auto& [network, taken] = groups_[name];
    network = network ? network : std::make_shared<in_process_network>(size);
    const auto found = network;
    if (++taken == size) {
      groups_.erase(name);  // or it would not end with its ranks
    }
    return found;
  }

 private:
  std::size_t size_;
  std::vector<std::unique_ptr<link>> links_;
  std::vector<doorbell> bells_;
  std::vector<std::atomic<bool>> closed_;
  std::mutex mutex_;
  std::optional<failure> cause_;
  std::atomic<const failure*> aborted_{nullptr};
  std::map<std::pair<std::uint64_t, int>, std::pair<std::shared_ptr<in_process_network>, int>> groups_;
};

}  // namespace detail

/// One rank's end. Destroying it closes it: peers still receive what was sent.
class in_process_transport {
 public:
  /// The ends of `size` ranks, rank 0's first. Throws contract_violation where size is not positive.
  static std::vector<in_process_transport> connect(int size) {
    require(size > 0, "in_process_transport: a job has at least one rank");
    auto network = std::make_shared<detail::in_process_network>(size);
    std::vector<in_process_transport> ends;
    ends.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      ends.push_back(in_process_transport(network, rank));
    }
    return ends;
  }

  in_process_transport(in_process_transport&&) noexcept = default;
  in_process_transport& operator=(in_process_transport&& other) noexcept {
    std::swap(network_, other.network_);
    std::swap(rank_, other.rank_);
    std::swap(sent_, other.sent_);
    std::swap(blocks_, other.blocks_);
    std::swap(splits_, other.splits_);
    return *this;
  }
  ~in_process_transport() {
    if (network_ != nullptr) {
      network_->closed(rank_).store(true, std::memory_order_release);
      network_->ring_all();
    }
  }

  int rank() const { return rank_; }
  int size() const { return network_->size(); }

  std::size_t try_send(int peer, std::span<const std::byte> bytes) {
    const std::size_t taken = network_->between(rank_, peer).payload.write(bytes);
    if (taken != 0) {
      network_->bell(peer).ring();
      sent_ += taken;
    }
    return taken;
  }

  std::size_t try_receive(int peer, std::span<std::byte> room) {
    const std::size_t arrived = network_->between(peer, rank_).payload.read(room);
    if (arrived != 0) {
      network_->bell(peer).ring();
    }
    return arrived;
  }

  bool try_send_control(int peer, const control_message& message) {
    auto& link = network_->between(rank_, peer);
    const std::size_t posted = link.posted.load(std::memory_order_relaxed);
    if (posted - link.taken.load(std::memory_order_acquire) == link.mailbox_capacity) {
      return false;
    }
    link.mailbox[posted % link.mailbox_capacity] = message;
    link.posted.store(posted + 1, std::memory_order_release);
    network_->bell(peer).ring();
    return true;
  }

  bool try_receive_control(int peer, control_message& message) {
    auto& link = network_->between(peer, rank_);
    const std::size_t taken = link.taken.load(std::memory_order_relaxed);
    if (link.posted.load(std::memory_order_acquire) == taken) {
      return false;
    }
    message = link.mailbox[taken % link.mailbox_capacity];
    link.taken.store(taken + 1, std::memory_order_release);
    network_->bell(peer).ring();
    return true;
  }

  bool peer_closed(int peer) {
    if (!network_->closed(peer).load(std::memory_order_acquire)) {
      return false;
    }
    const auto& link = network_->between(peer, rank_);
    return link.payload.empty() &&
           link.posted.load(std::memory_order_acquire) == link.taken.load(std::memory_order_relaxed);
  }

  /// All ranks of a process share memory.
  int memory_group(int) const { return 0; }

  /// Memory that can be lent.
  class lendable_memory {
   public:
    explicit lendable_memory(std::shared_ptr<detail::lendable_block> block) : block_(std::move(block)) {}
    std::byte* data() const { return block_->memory.data(); }

   private:
    std::shared_ptr<detail::lendable_block> block_;
  };

  lendable_memory allocate(std::size_t bytes) {
    std::erase_if(blocks_, [](const auto& block) { return block.expired(); });
    auto block = std::make_shared<detail::lendable_block>(bytes);
    blocks_.push_back(block);
    return lendable_memory(std::move(block));
  }

  bool can_lend(std::span<const extent> memory) const { return block_of(memory) != nullptr; }

  void lend(int peer, std::span<const extent> memory) {
    auto& link = network_->between(rank_, peer);
    link.lent_block = memory.empty() ? nullptr : block_of(memory);
    link.lent.assign(memory.begin(), memory.end());
    ++link.loans;
  }

  std::span<const extent> borrowed(int peer) const { return network_->between(peer, rank_).lent; }

  void give_back(int peer) {
    network_->between(peer, rank_).given_back.fetch_add(1, std::memory_order_release);
    network_->bell(peer).ring();
  }

  bool given_back(int peer) const {
    const auto& link = network_->between(rank_, peer);
    return link.given_back.load(std::memory_order_acquire) == link.loans;
  }

  failure abort(failure cause) { return network_->abort(std::move(cause)); }
  void tell(failure cause) { network_->abort(std::move(cause)); }
  const failure* aborted() const { return network_->aborted(); }

  /// A network of its own. See transport_makes_groups.
  template <class Gather>
  std::optional<in_process_transport> subgroup(std::span<const int> members, Gather&&) {
    ++splits_;
    const auto own = std::find(members.begin(), members.end(), rank_);
    if (own == members.end()) {
      return std::nullopt;
    }
    return in_process_transport(network_->group({splits_, members.front()}, static_cast<int>(members.size())),
                                static_cast<int>(own - members.begin()));
  }

  std::uint64_t events() const { return network_->bell(rank_).count(); }
  void wait(std::uint64_t seen, deadline until) { network_->bell(rank_).wait(seen, until); }
  deadline now() const { return std::chrono::steady_clock::now(); }

  std::uint64_t payload_bytes_sent() const { return sent_; }

 private:
  in_process_transport(std::shared_ptr<detail::in_process_network> network, int rank)
      : network_(std::move(network)), rank_(rank) {}

  /// The block that all of it lies in; none where there is no such block.
  std::shared_ptr<const detail::lendable_block> block_of(std::span<const extent> memory) const {
    for (const auto& known : blocks_) {
      const auto block = known.lock();
      if (block != nullptr && lies_in(memory, block->memory.data(), block->size)) {
        return block;
      }
    }
    return nullptr;
  }

  std::shared_ptr<detail::in_process_network> network_;
  int rank_;
  std::uint64_t sent_ = 0;
  std::vector<std::weak_ptr<detail::lendable_block>> blocks_;
  std::uint64_t splits_ = 0;  // the same on all ranks
};

static_assert(byte_transport<in_process_transport> && transport_shares_memory<in_process_transport> &&
              transport_makes_groups<in_process_transport>);

}  // namespace gradweave
