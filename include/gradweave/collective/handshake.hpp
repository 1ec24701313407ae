/// @file
/// The handshake of a collective: each rank tells the peers that it will receive from, lends memory to or borrows from that
/// it has entered; it sends payload only to peers that have, and touches the memory of no others. Ranks that entered
/// different collectives find out before a byte of payload moves, and an early k + 1 never mixes with k.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/opening.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

/// What one rank knows of its peers' openings.
class handshake {
 public:
  explicit handshake(std::size_t ranks) : peers_(ranks) {}

  /// Forgets what the collective before exchanged. Then `expect`, `owe`, `lend` and `borrow` say what this
  /// one will.
  void begin(const collective_request& request, std::uint64_t sequence) {
    request_ = request;
    sequence_ = sequence;
    for (peer_state& peer : peers_) {
      peer.own = {};
      peer.owed = 0;
      peer.settled = false;
      peer.unsent = false;
    }
  }

  /// `elements` more will come from `peer`.
  void expect(std::size_t peer, std::size_t elements) {
    peers_[peer].own.expected += elements;
    peers_[peer].unsent |= peers_[peer].own.expected != 0;
  }

  /// `elements` more go to `peer`.
  void owe(std::size_t peer, std::size_t elements) { peers_[peer].owed += elements; }

  /// `elements`, possibly none, are lent to `peer`.
  void lend(std::size_t peer, std::size_t elements) {
    peers_[peer].own.lent = elements;
    peers_[peer].unsent = true;
  }

  /// Of what `peer` lends, elements up to `end` are used.
  void borrow(std::size_t peer, std::size_t end) {
    peers_[peer].own.borrowed = std::max(peers_[peer].own.borrowed, end);
    peers_[peer].unsent = true;
  }

  /// What a step means for the peers.
  void announce(const schedule& plan, const schedule_step& step) {
    const auto peer = static_cast<std::size_t>(step.peer);
    switch (step.kind) {
      case step_kind::send: owe(peer, step.source.count); break;
      case step_kind::receive:
      case step_kind::receive_reduce: expect(peer, step.target.count); break;
      case step_kind::lend: lend(peer, std::max(step.source.count, step.target.count)); break;
      case step_kind::give_back: borrow(peer, 0); break;
      case step_kind::copy:
      case step_kind::divide:
      case step_kind::reduce: break;
    }
    plan.for_each_operand(step, [&](const operand& range, bool) {
      if (range.lender >= 0) {
        borrow(static_cast<std::size_t>(range.lender), range.end());
      }
    });
  }

  /// Everything owed to `peer` has been sent, and all loans between both are over: its opening is used up.
  void settle(std::size_t peer) {
    peers_[peer].has_arrived = peers_[peer].has_arrived && !is_open(peer);
    peers_[peer].settled = true;
  }

  /// `peer` has entered this collective.
  bool is_open(std::size_t peer) const {
    return peers_[peer].has_arrived && peers_[peer].arrived.sequence == sequence_;
  }

  /// The last that `peer` is known to have entered, in this collective or one before.
  std::optional<opening> last_entered(std::size_t peer) const {
    return peers_[peer].arrived.sequence == 0 ? std::nullopt : std::optional(peers_[peer].arrived);
  }

  /// All own openings are on their way.
  bool is_told() const {
    return std::none_of(peers_.begin(), peers_.end(), [](const peer_state& peer) { return peer.unsent; });
  }

  /// Sends and receives openings, as far as the transport lets it. Throws sync_error(collective_mismatch) where a peer
  /// entered another collective, unless this one is `complete` here already: then the next one finds out.
  template <byte_transport Transport>
  void exchange(Transport& transport, bool complete) {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      peer_state& peer = peers_[p];
      const int rank = static_cast<int>(p);
      if (rank == transport.rank()) {
        continue;
      }
      if (peer.unsent) {
        peer.unsent = !transport.try_send_control(rank, opening::of(request_, sequence_, peer.own).encode());
      }
      if (control_message in; !peer.has_arrived && transport.try_receive_control(rank, in)) {
        peer.arrived = opening::decode(in);
        peer.has_arrived = true;
      }
      // One for a later collective waits until that begins here, unless something is still owed in this one: then the
      // peer went on without it, so what it entered is not what was entered here.
      const bool still_owed = (peer.owed != 0 || peer.own.borrowed != 0 || peer.own.lent != 0) && !peer.settled;
      if (peer.has_arrived && !complete && (peer.arrived.sequence <= sequence_ || still_owed)) {
        check(p, transport.rank());
      }
    }
  }

  /// What was entered here, as the peer would say it.
  opening own(std::size_t peer) const {
    const peer_state& with = peers_[peer];
    return opening::of(request_, sequence_,
                       {.expected = with.owed, .lent = with.own.borrowed, .borrowed = with.own.lent});
  }

 private:
  struct peer_state {
    exchanged_elements own;    // as this collective's schedule has it
    std::size_t owed = 0;      // elements that it sends to the peer
    bool settled = false;      // its opening is used up
    bool unsent = false;       // the own opening has still to go
    bool has_arrived = false;  // an opening that is not used up
    opening arrived;
  };

  void check(std::size_t p, int own_rank) const {
    if (peers_[p].arrived != own(p)) {
      const std::string here = to_string(own(p)), there = to_string(peers_[p].arrived);
      throw sync_error({errc::collective_mismatch,
                        static_cast<int>(p),
                        -1,
                        -1,
                        {},
                        "ranks entered different collectives: rank " + std::to_string(own_rank) + " entered " + here +
                            ", rank " + std::to_string(p) + " " + there +
                            (here == there ? "; they differ in the reduction or its divisor" : "")});
    }
  }

  std::vector<peer_state> peers_;
  collective_request request_;
  std::uint64_t sequence_ = 0;
};

}  // namespace gradweave
