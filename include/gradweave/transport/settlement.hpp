/// @file
/// How ranks whose job has failed come to tell one story, although each may have found another cause.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/failure_message.hpp>

namespace gradweave {

/// One rank's part in it: two rounds of messages, each from all to all. In the first each rank tells the first cause
/// that it knew, in the second the one that it would choose. So two ranks that can't hear each other, and a rank that
/// ended after it had told some, still leave the others with the same causes to choose from (Lynch, Distributed
/// Algorithms, section 6.2: f + 1 rounds for f faults).
///
/// A rank answers as soon as it hears of a failure, whatever it is waiting for. Who is silent is busy or stopped: that
/// shows whom ranks that ran out of time were really waiting for.
///
/// It is a state machine that neither sends nor waits by itself: whoever drives it calls `next_message` after each
/// other call until it gives nothing, and again when the time has come that `due` gives.
class settlement {
 public:
  /// How long a round goes on without those that do not answer.
  static constexpr std::chrono::milliseconds round_time{350};

  settlement(int rank, int size) : own_(static_cast<std::size_t>(rank)), peers_(static_cast<std::size_t>(size)) {
    peers_[own_].gone = true;
  }

  bool begun() const { return first_.has_value(); }

  /// The first cause that this rank knew, its own or one that it heard.
  const failure& first() const { return *first_; }

  /// This rank's own cause. Nothing changes where one is known already.
  void begin(failure cause, deadline now) {
    if (!first_) {
      first_ = std::move(cause);
      round_ends_ = now + round_time;
    }
  }

  /// `peer` tells a cause.
  void hear(int peer, failure cause, deadline now) {
    begin(cause, now);
    peer_state& from = peers_[static_cast<std::size_t>(peer)];
    (from.first ? from.choice : from.first) = std::move(cause);
  }

  /// Nothing more will come from `peer`.
  void lose(int peer) { peers_[static_cast<std::size_t>(peer)].gone = true; }

  /// What is to be sent to all peers next, if anything.
  std::optional<failure> next_message(deadline now) {
    if (first_ && sent_ == 0) {
      sent_ = 1;
      return first_;
    }
    if (sent_ == 1 && (now >= round_ends_ || awaits_nobody())) {
      sent_ = 2;
      round_ends_ = now + round_time;
      choose();
      return chosen_;
    }
    if (sent_ == 2 && !complete_) {
      complete_ = now >= round_ends_ || awaits_nobody();
      for (const peer_state& peer : peers_) {
        if (complete_ && peer.choice && comes_before(*peer.choice, *chosen_)) {
          chosen_ = peer.choice;
        }
      }
    }
    return std::nullopt;
  }

  /// Whether something more has to come from `peer`.
  bool awaits(int peer) const {
    const peer_state& each = peers_[static_cast<std::size_t>(peer)];
    return !each.gone && (sent_ == 2 ? !each.choice && !each.silent : !each.first);
  }

  /// When next_message has to be called again at the latest; nothing where it does not depend on time.
  std::optional<deadline> due() const { return first_ && !complete_ ? std::optional(round_ends_) : std::nullopt; }

  /// Whether the story is settled. Then `chosen` is it.
  bool complete() const { return complete_; }
  const failure& chosen() const { return *chosen_; }

 private:
  struct peer_state {
    std::optional<failure> first;   // what it told in the first round
    std::optional<failure> choice;  // and in the second
    bool silent = false;            // when the first round ended
    bool gone = false;
  };

  bool awaits_nobody() const {
    for (std::size_t peer = 0; peer < peers_.size(); ++peer) {
      if (awaits(static_cast<int>(peer))) {
        return false;
      }
    }
    return true;
  }

  /// At the end of the first round.
  void choose() {
    chosen_ = first_;
    for (peer_state& peer : peers_) {
      peer.silent = !peer.gone && !peer.first;
      if (peer.first && comes_before(*peer.first, *chosen_)) {
        chosen_ = peer.first;
      }
    }
    if (chosen_->code == errc::timed_out) {
      name_the_silent(*chosen_);
    }
  }

  /// Who waits for a rank can't see whether that waits itself. Where it answers, it does.
  void name_the_silent(failure& cause) const {
    const auto silent = std::find_if(peers_.begin(), peers_.end(), [](const peer_state& peer) { return peer.silent; });
    const bool blamed_is_silent = cause.rank >= 0 && cause.rank < static_cast<int>(peers_.size()) &&
                                  peers_[static_cast<std::size_t>(cause.rank)].silent;
    if (silent != peers_.end() && !blamed_is_silent) {
      cause.rank = static_cast<int>(silent - peers_.begin());
      cause.detail = "rank " + std::to_string(cause.rank) + " does not answer; " + cause.detail;
    }
  }

  std::size_t own_;
  std::vector<peer_state> peers_;
  std::optional<failure> first_;
  std::optional<failure> chosen_;
  int sent_ = 0;  // messages
  bool complete_ = false;
  deadline round_ends_{};
};

}  // namespace gradweave
