/// @file
/// Which ranks of a job share memory. That two are on one host is proved by both mapping a segment of the other's: no
/// host's name is compared. Where that fails, for whatever reason, they do not share.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/descriptor.hpp>
#include <gradweave/transport/neighbour_socket.hpp>
#include <gradweave/transport/shared_block.hpp>

namespace gradweave {

/// Another rank with which memory is shared.
struct neighbour {
  neighbour_socket socket;
  shared_block block;   ///< its own
  descriptor doorbell;  ///< an eventfd; writing to it wakes the rank
};

struct neighbourhood {
  shared_block own;
  std::vector<std::optional<neighbour>> ranks;  ///< by rank; empty for the own one and those of other hosts
  std::vector<int> group_of;  ///< ranks of one number share memory with each other; the same on all ranks
  std::string obstacle;       ///< why this rank shares with nobody, where that is known
};

namespace detail {

/// Handed to a neighbour with the block and the doorbell. It shows that the caller is of the job: what `proof` holds only
/// went over the job's own connections.
struct neighbour_greeting {
  std::int32_t rank = 0;
  segment_proof proof{};
};

/// Numbers ranks so that all of one number share with each other. `shares[a * size + b]`: a has mapped b's memory.
inline std::vector<int> sharing_groups(int size, std::span<const std::uint8_t> shares) {
  const auto both = [&](int a, int b) {
    const auto at = [&](int from, int to) {
      return shares[static_cast<std::size_t>(from) * static_cast<std::size_t>(size) + static_cast<std::size_t>(to)];
    };
    return at(a, b) != 0 && at(b, a) != 0;
  };
  std::vector<int> group_of;
  for (int rank = 0; rank < size; ++rank) {
    int group = 0;
    for (;; ++group) {
      bool fits = true;
      for (int other = 0; other < rank; ++other) {
        fits = fits && (group_of[static_cast<std::size_t>(other)] != group || both(rank, other));
      }
      if (fits) {
        break;
      }
    }
    group_of.push_back(group);
  }
  return group_of;
}

/// One rank's part in finding out.
template <class Gather>
class neighbour_search {
 public:
  neighbour_search(int rank, int size, int doorbell, Gather& gather)
      : rank_(rank), size_(size), doorbell_(doorbell), gather_(gather) {
    found_.ranks.resize(static_cast<std::size_t>(size));
  }

  neighbourhood run() {
    prepare();
    const auto cards = gather_all(card_);
    std::vector<std::uint8_t> called(found_.ranks.size());
    for (int peer = 0; peer < rank_; ++peer) {
      called[at(peer)] = call(peer, cards[at(peer)]) ? 1 : 0;
    }
    const auto calls = gather_rows(called);
    const auto until = std::chrono::steady_clock::now() + patience;
    answered_.resize(found_.ranks.size());
    const auto is_awaited = [&](int peer) {
      return calls[at(peer) * at(size_) + at(rank_)] != 0 && !answered_[at(peer)];
    };
    for (int peer = rank_ + 1; peer < size_; ++peer) {
      // Others may call in between, and strangers, who are sent away.
      while (is_awaited(peer) && answer(cards, until)) {
      }
    }
    std::vector<std::uint8_t> mapped(found_.ranks.size());
    for (int peer = 0; peer < size_; ++peer) {
      if (called[at(peer)] != 0) {
        hear(peer, cards[at(peer)], until);
      }
      mapped[at(peer)] = is_mapped(peer) ? 1 : 0;
    }
    found_.group_of = sharing_groups(size_, gather_rows(mapped));
    for (int peer = 0; peer < size_; ++peer) {
      if (found_.group_of[at(peer)] != found_.group_of[at(rank_)]) {
        found_.ranks[at(peer)].reset();
      }
    }
    found_.own.close_handle();
    return std::move(found_);
  }

 private:
  static constexpr std::chrono::seconds patience{10};

  struct card {
    neighbour_name name;
    segment_proof proof{};
  };

  static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }

  void prepare() {
    std::random_device random;
    for (std::byte& each : card_.proof) {
      each = static_cast<std::byte>(random());
    }
    if (doorbell_ < 0) {
      found_.obstacle = "it is turned off";
      return;
    }
    try {
      found_.own = shared_block::create(size_, card_.proof);
      listener_.emplace(size_);
      card_.name = listener_->name();
    } catch (const std::system_error& error) {
      found_.obstacle = error.what();
      card_.name = {};
    }
  }

  std::vector<card> gather_all(const card& own) {
    std::vector<card> all(at(size_));
    gather_(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  std::vector<std::uint8_t> gather_rows(const std::vector<std::uint8_t>& own) {
    std::vector<std::uint8_t> all(own.size() * own.size());
    gather_(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
    return all;
  }

  bool greet(const neighbour_socket& socket, const segment_proof& proof) const {
    return socket.send(neighbour_greeting{rank_, proof}, {found_.own.handle(), doorbell_},
                       std::chrono::steady_clock::now() + patience);
  }

  bool call(int peer, const card& theirs) {
    if (!listener_) {
      return false;
    }
    auto socket = neighbour_socket::connect(theirs.name);
    if (!socket || !greet(*socket, theirs.proof)) {
      return false;
    }
    callers_.resize(found_.ranks.size());
    callers_[at(peer)] = std::move(*socket);
    return true;
  }

  /// Takes in whoever calls next, if it is a rank of the job. A greeting comes with the call: who sends none is a
  /// stranger. False where nobody called in time.
  bool answer(const std::vector<card>& cards, std::chrono::steady_clock::time_point until) {
    auto socket = listener_->accept(until);
    if (!socket) {
      return false;
    }
    std::vector<descriptor> handed;
    const auto greeting = socket->template receive<neighbour_greeting>(handed, std::chrono::steady_clock::now());
    if (greeting && greeting->proof == card_.proof && greeting->rank > rank_ && greeting->rank < size_) {
      const card& theirs = cards[at(greeting->rank)];
      answered_[at(greeting->rank)] = true;  // it calls once, and may be gone by now
      if (greet(*socket, theirs.proof)) {
        admit(greeting->rank, theirs, std::move(*socket), handed);
      }
    }
    return true;
  }

  void hear(int peer, const card& theirs, std::chrono::steady_clock::time_point until) {
    std::vector<descriptor> handed;
    const auto greeting = callers_[at(peer)].template receive<neighbour_greeting>(handed, until);
    if (greeting && greeting->proof == card_.proof && greeting->rank == peer) {
      admit(peer, theirs, std::move(callers_[at(peer)]), handed);
    }
  }

  void admit(int peer, const card& theirs, neighbour_socket socket, std::vector<descriptor>& handed) {
    if (handed.size() != 2) {
      return;
    }
    try {
      shared_block block = shared_block::adopt(std::move(handed[0]));
      if (block.is_of(size_, theirs.proof)) {
        block.close_handle();
        found_.ranks[at(peer)].emplace(neighbour{std::move(socket), std::move(block), std::move(handed[1])});
      }
    } catch (const std::system_error& error) {
      found_.obstacle = error.what();
    }
  }

  bool is_mapped(int peer) const { return found_.ranks[at(peer)].has_value(); }

  int rank_;
  int size_;
  int doorbell_;
  Gather& gather_;
  card card_;
  std::optional<neighbour_listener> listener_;
  std::vector<neighbour_socket> callers_;  // by rank
  std::vector<bool> answered_;             // by rank
  neighbourhood found_;
};

}  // namespace detail

/// Finds out, on all ranks at once. `gather(own bytes, all bytes)` collects what each rank gives, in rank order, on all
/// ranks; it is called three times. `doorbell` is the eventfd that wakes this rank; -1 where it wants to share nothing.
template <class Gather>
neighbourhood find_neighbours(int rank, int size, int doorbell, Gather&& gather) {
  return detail::neighbour_search<std::remove_reference_t<Gather>>(rank, size, doorbell, gather).run();
}

}  // namespace gradweave
