/// @file
/// The shared-memory transport: ranks of one host lend each other memory in segments, and post control messages there.
/// Payload that is sent, and all that concerns other hosts or failures, goes over another transport.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/description.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/lending_desk.hpp>
#include <gradweave/transport/neighbourhood.hpp>
#include <gradweave/transport/segment.hpp>
#include <gradweave/transport/shared_block.hpp>
#include <gradweave/transport/spinning.hpp>

namespace gradweave {

/// Atom of a transport that shared memory can stand beside: `doorbell()` is an eventfd; writing to it ends `wait`.
template <class T>
concept transport_has_doorbell = requires(const T& transport) {
  { transport.doorbell() } -> std::same_as<int>;
};

/// `Remote` reaches every rank. Until `share` is called, and for ranks that share no memory, all goes over it.
template <byte_transport Remote>
  requires transport_has_doorbell<Remote>
class shared_memory_transport {
 public:
  /// Where one rank does not want to share, the others do without it.
  explicit shared_memory_transport(Remote remote, bool wants_to_share = true)
      : remote_(std::move(remote)), wants_to_share_(wants_to_share) {}

  /// Finds the ranks of this host, on all ranks at once; see find_neighbours.
  template <class Gather>
  void share(Gather&& gather) {
    const int doorbell = wants_to_share_ ? remote_.doorbell() : -1;
    desk_ = std::make_unique<detail::lending_desk>(
        rank(), find_neighbours(rank(), size(), doorbell, std::forward<Gather>(gather)));
    int members = 0;
    for (int peer = 0; peer < size(); ++peer) {
      members += memory_group(peer) == memory_group(rank()) ? 1 : 0;
    }
    all_share_ = members == size();
    closed_.resize(static_cast<std::size_t>(size()));
  }

  int rank() const { return remote_.rank(); }
  int size() const { return remote_.size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) { return remote_.try_send(peer, bytes); }
  std::size_t try_receive(int peer, std::span<std::byte> room) { return remote_.try_receive(peer, room); }
  std::size_t try_send_pieces(int peer, std::span<const std::span<const std::byte>> pieces)
    requires transport_takes_pieces<Remote>
  {
    return remote_.try_send_pieces(peer, pieces);
  }
  std::size_t try_receive_pieces(int peer, std::span<const std::span<std::byte>> pieces)
    requires transport_takes_pieces<Remote>
  {
    return remote_.try_receive_pieces(peer, pieces);
  }

  bool try_send_control(int peer, const control_message& message) {
    if (!shares_with(peer)) {
      return remote_.try_send_control(peer, message);
    }
    if (!desk_->to(peer).post(message)) {
      return false;
    }
    ring(peer);
    return true;
  }

  bool try_receive_control(int peer, control_message& message) {
    if (!shares_with(peer)) {
      return remote_.try_receive_control(peer, message);
    }
    if (!desk_->from(peer).take(message)) {
      return false;
    }
    ring(peer);  // there is room again
    return true;
  }

  /// Whether a neighbour is gone shows on its connection. To look there costs more than a small collective, so it is done
  /// before and after this rank sleeps only; what is found is an event.
  bool peer_closed(int peer) {
    if (!shares_with(peer)) {
      return remote_.peer_closed(peer);
    }
    return closed_[static_cast<std::size_t>(peer)] && desk_->from(peer).is_empty();
  }

  int memory_group(int rank) const { return desk_ ? desk_->group_of(rank) : rank; }

  /// Memory that can be lent.
  class lendable_memory {
   public:
    explicit lendable_memory(std::shared_ptr<segment> memory) : memory_(std::move(memory)) {}
    std::byte* data() const { return memory_->data(); }

   private:
    std::shared_ptr<segment> memory_;
  };
  lendable_memory allocate(std::size_t bytes) { return lendable_memory(desk().allocate(bytes)); }
  bool can_lend(std::span<const extent> memory) const { return desk_ && desk_->can_lend(memory); }
  void lend(int peer, std::span<const extent> memory) { desk().lend(peer, memory); }
  std::span<const extent> borrowed(int peer) { return desk().borrowed(peer); }
  bool given_back(int peer) { return desk().given_back(peer); }
  void give_back(int peer) {
    desk().give_back(peer);
    ring(peer);
  }

  failure abort(failure cause) { return remote_.abort(std::move(cause)); }
  void tell(failure cause) { remote_.tell(std::move(cause)); }
  template <class Gather>
  std::optional<shared_memory_transport> subgroup(std::span<const int> members, Gather&& gather)
    requires transport_makes_groups<Remote>
  {
    auto remote = remote_.subgroup(members, gather);
    return remote ? std::optional(shared_memory_transport(std::move(*remote), wants_to_share_)) : std::nullopt;
  }
  const failure* aborted() { return remote_.aborted(); }

  std::uint64_t events() { return remote_.events() + rung() + closures_; }

  void wait(std::uint64_t seen, deadline until) {
    if (!has_block()) {
      remote_.wait(seen, until);
      return;
    }
    // Only where nothing comes over sockets: who spins here does not look at them.
    if (all_share_ && spin_.until([&] { return events() != seen; })) {
      return;
    }
    // The end of a connection is told to a sleeper once, and may have been told before.
    look_for_closures();
    desk_->bell().sleeping.store(1, std::memory_order_seq_cst);
    const std::uint64_t heard = remote_.events();
    if (heard + rung() + closures_ == seen) {
      remote_.wait(heard, until);
      look_for_closures();
    }
    desk_->bell().sleeping.store(0, std::memory_order_relaxed);
  }

  deadline now() const { return remote_.now(); }
  std::uint64_t payload_bytes_sent() const { return remote_.payload_bytes_sent(); }

  std::string route(int peer) const
    requires requires(const Remote& remote) { remote.route(0); }
  {
    return (shares_with(peer) ? "shared memory, and " : "") + remote_.route(peer);
  }
  void describe(description& sink) const
    requires requires(const Remote& remote) { remote.describe(sink); }
  {
    remote_.describe(sink);
  }
  void describe_here(description& sink) const {
    if constexpr (requires { remote_.describe_here(sink); }) {
      remote_.describe_here(sink);
    }
    std::string with;
    for (int peer = 0; peer < size(); ++peer) {
      with += shares_with(peer) ? (with.empty() ? "rank " : ", rank ") + std::to_string(peer) : "";
    }
    if (with.empty()) {
      const std::string obstacle = desk_ ? desk_->around().obstacle : std::string();
      with = obstacle.empty() ? "nobody" : "nobody: " + obstacle;
    }
    sink.add("shares memory with", with);
  }

 private:
  bool shares_with(int peer) const { return desk_ && desk_->has(peer); }
  /// A rank that does not share has none.
  bool has_block() const { return desk_ && desk_->around().own; }
  std::uint64_t rung() const { return has_block() ? desk_->bell().rung.load(std::memory_order_seq_cst) : 0; }

  void look_for_closures() {
    for (int peer = 0; peer < size(); ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      if (shares_with(peer) && !closed_[p] && remote_.peer_closed(peer)) {
        closed_[p] = true;
        ++closures_;
      }
    }
  }

  /// Before `share` memory is only this process's; it is made all the same.
  detail::lending_desk& desk() {
    if (!desk_) {
      neighbourhood alone;
      alone.ranks.resize(static_cast<std::size_t>(size()));
      for (int peer = 0; peer < size(); ++peer) {
        alone.group_of.push_back(peer);
      }
      desk_ = std::make_unique<detail::lending_desk>(rank(), std::move(alone));
    }
    return *desk_;
  }

  void ring(int peer) {
    const neighbour& who = *desk_->around().ranks[static_cast<std::size_t>(peer)];
    who.block.bell().rung.fetch_add(1, std::memory_order_seq_cst);
    if (who.block.bell().sleeping.load(std::memory_order_seq_cst) != 0) {
      const std::uint64_t one = 1;
      (void)!::write(who.doorbell.number(), &one, sizeof one);
    }
  }

  Remote remote_;
  bool wants_to_share_;
  std::unique_ptr<detail::lending_desk> desk_;
  bool all_share_ = false;
  std::vector<bool> closed_;  // by rank, of those that share
  std::uint64_t closures_ = 0;
  spinner spin_;
};

}  // namespace gradweave
