/// @file
/// What one rank lends to the ranks of its host and borrows from them: segments, which are handed over once, and places in
/// them, which are told with each loan.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/descriptor.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/transport/neighbourhood.hpp>
#include <gradweave/transport/segment.hpp>
#include <gradweave/transport/shared_block.hpp>

namespace gradweave::detail {

/// "Segment `number` is mine", with its descriptor, or that it is no more.
struct segment_notice {
  std::uint32_t number = 0;
  std::uint32_t exists = 0;
};

/// What one rank lends and borrows.
class lending_desk {
 public:
  lending_desk(int rank, neighbourhood around) : rank_(rank), around_(std::move(around)) {
    known_.resize(around_.ranks.size());
    loans_.resize(around_.ranks.size());
  }

  bool has(int peer) const { return around_.ranks[at(peer)].has_value(); }
  int group_of(int rank) const { return around_.group_of[at(rank)]; }
  const neighbourhood& around() const { return around_; }
  shared_bell& bell() const { return around_.own.bell(); }
  shared_pair& to(int peer) const { return around_.own.towards(peer); }
  shared_pair& from(int peer) const { return around_.ranks[at(peer)]->block.towards(rank_); }

  std::shared_ptr<segment> allocate(std::size_t bytes) {
    retire();
    auto made = std::make_shared<segment>(segment::create(bytes));
    const segment_notice notice{next_++, 1};
    announce(notice, {made->handle()});
    made->close_handle();
    own_.push_back({notice.number, made, made->data(), made->size()});
    return made;
  }

  bool can_lend(std::span<const extent> memory) const {
    return memory.size() <= shared_pair::pieces_max && (memory.empty() || find(memory) != own_.end());
  }

  void lend(int peer, std::span<const extent> memory) {
    shared_pair& pair = to(peer);
    pair.lent_count = static_cast<std::uint32_t>(memory.size());
    if (!memory.empty()) {
      const auto place = find(memory);
      pair.lent_segment = place->number;
      for (std::size_t i = 0; i < memory.size(); ++i) {
        pair.lent[i] = {static_cast<std::uint64_t>(memory[i].memory - place->data), memory[i].bytes};
      }
    }
    ++loans_[at(peer)];
  }

  bool given_back(int peer) const { return to(peer).given_back.load(std::memory_order_acquire) == loans_[at(peer)]; }

  std::span<const extent> borrowed(int peer) {
    known_memory& known = known_[at(peer)];
    if (!known.translated) {
      translate(peer, known);
      known.translated = true;
    }
    return known.lent;
  }

  void give_back(int peer) {
    known_[at(peer)].translated = false;
    from(peer).given_back.store(from(peer).given_back.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  struct own_segment {
    std::uint32_t number;
    std::weak_ptr<segment> memory;
    std::byte* data;
    std::size_t size;
  };
  /// Of a neighbour.
  struct known_memory {
    std::map<std::uint32_t, segment> segments;
    std::vector<extent> lent;
    bool translated = false;
  };

  static constexpr std::chrono::seconds patience{10};

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  std::vector<own_segment>::const_iterator find(std::span<const extent> memory) const {
    return std::find_if(own_.begin(), own_.end(), [&](const own_segment& each) {
      return !each.memory.expired() && lies_in(memory, each.data, each.size);
    });
  }

  /// Who does not take it is gone, and will be missed as a peer.
  void announce(const segment_notice& notice, std::initializer_list<int> descriptors) const {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (const auto& peer : around_.ranks) {
      if (peer) {
        (void)peer->socket.send(notice, descriptors, until);
      }
    }
  }

  /// Tells the neighbours what they need not map any more.
  void retire() {
    std::erase_if(own_, [&](const own_segment& each) {
      if (each.memory.expired()) {
        announce({each.number, 0}, {});
      }
      return each.memory.expired();
    });
  }

  void translate(int peer, known_memory& known) {
    const shared_pair& pair = from(peer);
    known.lent.clear();
    if (pair.lent_count == 0) {
      return;
    }
    const std::uint32_t number = pair.lent_segment;
    const auto until = std::chrono::steady_clock::now() + patience;
    while (known.segments.find(number) == known.segments.end()) {
      if (!learn(peer, known, until)) {
        throw sync_error({errc::peer_lost,
                          peer,
                          -1,
                          -1,
                          {},
                          "rank " + std::to_string(peer) + " is gone and its memory can't be reached any more"});
      }
    }
    const segment& memory = known.segments.at(number);
    for (std::size_t i = 0; i < std::min<std::size_t>(pair.lent_count, shared_pair::pieces_max); ++i) {
      const auto [offset, bytes] = pair.lent[i];
      if (offset > memory.size() || bytes > memory.size() - offset) {
        throw sync_error({errc::internal, peer, -1, -1, {}, "a rank of this host lends memory that it does not have"});
      }
      append_extent(known.lent, memory.data() + offset, bytes);
    }
  }

  /// Takes in one notice. False where none comes.
  bool learn(int peer, known_memory& known, std::chrono::steady_clock::time_point until) {
    std::vector<descriptor> handed;
    const auto notice = around_.ranks[at(peer)]->socket.template receive<segment_notice>(handed, until);
    if (!notice) {
      return false;
    }
    if (notice->exists == 0) {
      known.segments.erase(notice->number);
    } else if (handed.size() == 1) {
      segment memory = segment::adopt(std::move(handed[0]));
      memory.close_handle();
      known.segments.emplace(notice->number, std::move(memory));
    }
    return true;
  }

  int rank_;
  neighbourhood around_;
  std::vector<own_segment> own_;
  std::uint32_t next_ = 1;
  std::vector<known_memory> known_;   // by rank
  std::vector<std::uint64_t> loans_;  // by rank: how many were made to it
};

}  // namespace gradweave::detail
