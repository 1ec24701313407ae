/// @file
/// Collectives over hosts that are not all-reduces: ranks of a host read and write each other's memory, and between hosts
/// each byte travels as seldom as if a host were one rank. An all-reduce is composed in collective/hierarchical.hpp.
///
/// For a reduce-scatter and an all-gather as many ranks of each host talk to other hosts as the smallest host has: owner j
/// of a host does so for the j-th part of the buffer, and forms a ring with the j-th owners of the others. For a broadcast
/// and a barrier one rank of each host does.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/collective/chain.hpp>
#include <gradweave/collective/dissemination.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/shared.hpp>
#include <gradweave/collective/tree.hpp>

namespace gradweave {

/// Makes them. Holds the memory for it, so that it is reused. `pieces` holds a position a rank, and the end.
class composed_schedules {
 public:
  /// Rank r begins with piece r; all end with all pieces. All ranks together send (G-1) times the buffer, for G hosts.
  void all_gather(const rank_groups& groups, int rank, std::span<const std::size_t> pieces, schedule& out) {
    operand own;
    if (!lend_parts(groups, rank, pieces.back(), own, out)) {
      return;
    }
    const auto members = groups.members(groups.group_of(rank));
    clips(members, pieces, own);
    for (clip& each : present_) {
      if (each.rank != rank) {
        each.step = last_local_ =
            out.copy(borrowed(each.rank, each.part.begin - own.begin, each.part.count), each.part);
        each.has_step = has_local_ = true;
      }
      write_to_members(members, rank, own, each, out);
    }
    const auto hosts = static_cast<int>(groups.count());
    const schedule_world host{groups.group_of(rank), hosts};
    for (int round = 0; round < hosts - 1; ++round) {
      send_clips(owner_of(groups, host.neighbour(1)), out);
      clips(groups.members(host.neighbour(-1 - round)), pieces, own);
      for (clip& each : present_) {
        each.step = out.receive(owner_of(groups, host.neighbour(-1)), each.part);
        each.has_step = true;
        write_to_members(members, rank, own, each, out);
      }
    }
    give_back_to(members, rank, out);
  }

  /// Rank r ends with piece r, summed and divided; the other pieces hold partial sums. All ranks together send (G-1) times
  /// the buffer, for G hosts.
  void reduce_scatter(const rank_groups& groups, int rank, std::span<const std::size_t> pieces, schedule& out) {
    operand own;
    if (!lend_parts(groups, rank, pieces.back(), own, out)) {
      return;
    }
    const auto members = groups.members(groups.group_of(rank));
    within_.clear();
    if (members.size() > 1) {
      places_.clear();
      for (const int member : members) {
        places_.push_back(member == rank ? own : borrowed(member, 0, own.count));
      }
      within_.push_back(out.reduce(places_, {&own, 1}, false));
    }
    const auto hosts = static_cast<int>(groups.count());
    const schedule_world host{groups.group_of(rank), hosts};
    clips(groups.members(host.neighbour(-1)), pieces, own);
    schedule::after_steps after = within_;
    for (int round = 0; round < hosts - 1; ++round) {
      send_clips(owner_of(groups, host.neighbour(1)), out, within_);
      clips(groups.members(host.neighbour(-2 - round)), pieces, own);
      for (clip& each : present_) {
        each.step = out.receive_reduce(owner_of(groups, host.neighbour(-1)), each.part, std::exchange(after, {}));
        each.has_step = true;
      }
    }
    hand_out(rank, own, out);
    give_back_to(members, rank, out);
  }

  /// `elements` elements from rank `root` to all: to one rank of each other host, by a tree up to `tree_elements_max`, else
  /// by a chain in pieces of `piece_elements`; from there to the ranks of the host as they come.
  void broadcast(const rank_groups& groups, int rank, int root, std::size_t elements, std::size_t tree_elements_max,
                 std::size_t piece_elements, schedule& out) {
    const operand whole{operand_buffer::data, 0, elements};
    const auto members = groups.members(groups.group_of(rank));
    choose_leaders(groups, root);
    const int leader = leaders_[static_cast<std::size_t>(groups.group_of(rank))];
    has_local_ = false;
    if (elements == 0) {
      return;
    }
    if (rank != leader) {
      out.lend_to_write(leader, whole);
      return;
    }
    const schedule_world host{groups.group_of(rank), static_cast<int>(groups.count())};
    const schedule::index first = out.next();
    if (elements <= tree_elements_max) {
      binomial_broadcast(host, groups.group_of(root), elements, out);
    } else {
      chain_broadcast(host, groups.group_of(root), elements, piece_elements, out);
    }
    const schedule::index end = between_leaders(first, out);
    if (rank == root) {
      write_to_members(members, rank, whole, {rank, whole}, out);
    }
    for (schedule::index i = first; i < end; ++i) {
      if (const schedule_step step = out.steps()[i]; step.kind == step_kind::receive) {
        write_to_members(members, rank, whole, {rank, step.target, i, true}, out);
      }
    }
    give_back_to(members, rank, out);
  }

  /// Rank r's piece r goes to `root`.
  static void gather(const rank_groups& groups, int rank, int root, std::span<const std::size_t> pieces,
                     schedule& out) {
    const schedule_world world{rank, static_cast<int>(pieces.size()) - 1};
    const operand own = piece_of(pieces, rank);
    if (rank != root && groups.group_of(rank) != groups.group_of(root)) {
      out.send(root, own);
    } else if (rank != root && own.count != 0) {
      out.give_back(root, {out.copy(own, borrowed(root, 0, own.count))});
    }
    for (int distance = 1; rank == root && distance < world.size; ++distance) {
      const int from = world.neighbour(distance);
      const operand piece = piece_of(pieces, from);
      if (groups.group_of(from) != groups.group_of(root)) {
        out.receive(from, piece);
      } else if (piece.count != 0) {
        out.lend_to_write(from, piece);
      }
    }
  }

  /// Piece r of `source` goes to rank r; piece r of `data` comes from rank r.
  static void all_to_all(const rank_groups& groups, int rank, std::span<const std::size_t> source_pieces,
                         std::span<const std::size_t> pieces, schedule& out) {
    const schedule_world world{rank, static_cast<int>(pieces.size()) - 1};
    out.copy(piece_of(source_pieces, rank, operand_buffer::source), piece_of(pieces, rank));
    for (int distance = 1; distance < world.size; ++distance) {
      const int to = world.neighbour(distance);
      const operand source = piece_of(source_pieces, to, operand_buffer::source);
      if (groups.group_of(to) != groups.group_of(rank)) {
        out.send(to, source);
      } else if (source.count != 0) {
        out.lend_to_read(to, source);
      }
      const int from = world.neighbour(-distance);
      const operand target = piece_of(pieces, from);
      if (groups.group_of(from) != groups.group_of(rank)) {
        out.receive(from, target);
      } else if (target.count != 0) {
        out.give_back(from, {out.copy(borrowed(from, 0, target.count), target)});
      }
    }
  }

  /// One rank of each host knows that all of its host have come, and speaks for them.
  void barrier(const rank_groups& groups, int rank, schedule& out) {
    const auto members = groups.members(groups.group_of(rank));
    choose_leaders(groups, members.front());
    if (rank != members.front()) {
      out.lend_to_read(members.front(), {});
      out.give_back(members.front());
      return;
    }
    within_.clear();
    for (const int member : members.subspan(1)) {
      within_.push_back(out.lend_to_read(member, {}));  // given back once it has come
    }
    const schedule::index first = out.next();
    dissemination_barrier({groups.group_of(rank), static_cast<int>(groups.count())}, out, within_);
    const schedule::index end = between_leaders(first, out);
    for (const int member : members.subspan(1)) {
      out.give_back(member, {end - 1});
    }
  }

 private:
  /// The part of a rank's piece that an owner is responsible for, and the step that brings it, if it has to come.
  struct clip {
    int rank = 0;
    operand part;
    schedule::index step = 0;
    bool has_step = false;
  };

  /// Lends each owner of the host its part of the buffer. False where this rank is no owner, or of nothing; else `own` is
  /// its part.
  bool lend_parts(const rank_groups& groups, int rank, std::size_t elements, operand& own, schedule& out) {
    const auto members = groups.members(groups.group_of(rank));
    const std::size_t owners = groups.smallest();
    cut_evenly(elements, static_cast<int>(owners), parts_);
    own = {};
    for (std::size_t i = 0; i < owners; ++i) {
      const operand part = piece_of(parts_, static_cast<int>(i));
      if (members[i] == rank) {
        own = part;
        place_ = i;
      } else if (part.count != 0) {
        out.lend_to_update(members[i], part);
      }
    }
    has_local_ = false;
    return own.count != 0;
  }

  /// Who is responsible for the same part on another host.
  int owner_of(const rank_groups& groups, int group) const { return groups.members(group)[place_]; }

  /// What of the pieces of `ranks` lies in `own`.
  void clips(std::span<const int> ranks, std::span<const std::size_t> pieces, const operand& own) {
    present_.clear();
    for (const int rank : ranks) {
      const operand piece = piece_of(pieces, rank);
      const std::size_t begin = std::max(piece.begin, own.begin);
      const std::size_t end = std::min(piece.end(), own.end());
      if (begin < end) {
        present_.push_back({rank, {operand_buffer::data, begin, end - begin}});
      }
    }
  }

  /// What is present, each as soon as it is; what is present from the start, after the steps `otherwise`.
  void send_clips(int to, schedule& out, schedule::after_steps otherwise = {}) const {
    for (const clip& each : present_) {
      if (each.has_step) {
        out.send(to, each.part, {each.step});
      } else {
        out.send(to, each.part, std::exchange(otherwise, {}));  // the others are sent behind it
      }
    }
  }

  /// To the other ranks of the host, except whose it is. They lent what begins where `lent` does.
  void write_to_members(std::span<const int> members, int rank, const operand& lent, const clip& what, schedule& out) {
    places_.clear();
    for (const int member : members) {
      if (member != rank && member != what.rank) {
        places_.push_back(borrowed(member, what.part.begin - lent.begin, what.part.count));
      }
    }
    // What this rank copied itself was local work, as this is: it is done anyway.
    const bool comes = what.has_step && out.steps()[what.step].kind != step_kind::copy;
    if (!places_.empty()) {
      last_local_ = comes ? out.reduce({&what.part, 1}, places_, false, {what.step})
                          : out.reduce({&what.part, 1}, places_, false);
      has_local_ = true;
    }
  }

  /// The sums of this host's pieces, divided, to whose they are.
  void hand_out(int rank, const operand& own, schedule& out) {
    for (const clip& each : present_) {
      const operand to =
          each.rank == rank ? each.part : borrowed(each.rank, each.part.begin - own.begin, each.part.count);
      last_local_ = out.reduce({&each.part, 1}, {&to, 1}, true, {each.step});
      has_local_ = true;
    }
    if (!has_local_ && !within_.empty()) {
      last_local_ = within_.front();
      has_local_ = true;
    }
  }

  /// Local work is done in order: after the last of it nothing of the others' memory is touched.
  void give_back_to(std::span<const int> members, int rank, schedule& out) const {
    for (const int member : members) {
      if (member != rank) {
        has_local_ ? out.give_back(member, {last_local_}) : out.give_back(member);
      }
    }
  }

  /// The first rank of each host, but of `root`'s host `root`.
  void choose_leaders(const rank_groups& groups, int root) {
    leaders_.clear();
    for (int group = 0; group < static_cast<int>(groups.count()); ++group) {
      leaders_.push_back(group == groups.group_of(root) ? root : groups.members(group).front());
    }
  }

  /// Steps from `first` on were made for ranks 0 to G-1: they are the leaders'. Returns the end of these steps.
  schedule::index between_leaders(schedule::index first, schedule& out) const {
    for (schedule_step& step : out.steps().subspan(first)) {
      step.peer = step.peer < 0 ? step.peer : leaders_[static_cast<std::size_t>(step.peer)];
    }
    return out.next();
  }

  std::vector<std::size_t> parts_;
  std::vector<clip> present_;
  std::vector<operand> places_;
  std::vector<schedule::index> within_;
  std::vector<int> leaders_;
  std::size_t place_ = 0;
  schedule::index last_local_ = 0;
  bool has_local_ = false;
};

}  // namespace gradweave
