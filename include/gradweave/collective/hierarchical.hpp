/// @file
/// Hierarchical composition: inside a group of ranks that share memory, pieces are reduced and written back in place;
/// between groups they travel by a ring of messages. Between hosts each byte then travels as seldom as if a host were
/// one rank: 2 (G-1)/G of the buffer a host, for G groups.
///
/// Groups may differ in size. As many ranks of each group talk to other groups as the smallest group has.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/collective/ring.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/shared.hpp>

namespace gradweave {

/// Which ranks share memory. Each rank is in one group; a group lists its ranks in order.
class rank_groups {
 public:
  /// `group_of[r]` is any number that the ranks of r's group have in common.
  explicit rank_groups(std::span<const int> group_of) {
    std::vector<int> numbers;
    for (std::size_t rank = 0; rank < group_of.size(); ++rank) {
      const auto known = std::find(numbers.begin(), numbers.end(), group_of[rank]);
      const auto place = static_cast<std::size_t>(known - numbers.begin());
      if (known == numbers.end()) {
        numbers.push_back(group_of[rank]);
        members_.emplace_back();
      }
      members_[place].push_back(static_cast<int>(rank));
      place_.push_back(static_cast<int>(place));
    }
  }

  std::size_t count() const { return members_.size(); }
  int group_of(int rank) const { return place_[static_cast<std::size_t>(rank)]; }
  std::span<const int> members(int group) const { return members_[static_cast<std::size_t>(group)]; }
  /// Of the group that has the fewest ranks.
  std::size_t smallest() const {
    return std::min_element(members_.begin(), members_.end(),
                            [](const auto& a, const auto& b) { return a.size() < b.size(); })
        ->size();
  }

 private:
  std::vector<std::vector<int>> members_;
  std::vector<int> place_;
};

/// Makes them. Holds the memory for it, so that it is reused.
class hierarchical_schedules {
 public:
  void all_reduce(const rank_groups& groups, int rank, std::size_t elements, schedule& out) {
    const int group = groups.group_of(rank);
    const auto members = groups.members(group);
    const std::size_t owners = groups.smallest();
    cut_evenly(elements, static_cast<int>(owners), pieces_);
    std::size_t own_place = owners;  // no owner, unless found
    for (std::size_t i = 0; i < owners; ++i) {
      const operand piece = piece_of(pieces_, static_cast<int>(i));
      if (members[i] == rank) {
        own_place = i;
      } else if (piece.count != 0) {
        out.lend_to_update(members[i], piece);
      }
    }
    if (own_place == owners || piece_of(pieces_, static_cast<int>(own_place)).count == 0) {
      return;
    }
    const operand own = piece_of(pieces_, static_cast<int>(own_place));
    after_.clear();
    if (members.size() > 1) {
      places_.clear();
      for (const int member : members) {
        places_.push_back(member == rank ? own : borrowed(member, 0, own.count));
      }
      after_.push_back(out.reduce(places_, {&own, 1}, false));
    }
    ring_.clear();
    for (std::size_t g = 0; g < groups.count(); ++g) {
      ring_.push_back(groups.members(static_cast<int>(g))[own_place]);
    }
    cut_evenly(own.count, static_cast<int>(ring_.size()), ring_pieces_);
    for (std::size_t& position : ring_pieces_) {
      position += own.begin;
    }
    schedule::index written = 0;
    ring_all_reduce(ring_place::of(ring_, group), ring_pieces_, out, after_, [&](int piece, schedule::index step) {
      if (members.size() > 1) {
        written = write_back(members, rank, own, piece_of(ring_pieces_, piece), step, out);
      }
    });
    for (const int member : members) {
      if (member != rank) {
        out.give_back(member, {written});
      }
    }
  }

 private:
  schedule::index write_back(std::span<const int> members, int rank, const operand& own, const operand& piece,
                             schedule::index after, schedule& out) {
    places_.clear();
    for (const int member : members) {
      if (member != rank) {
        places_.push_back(borrowed(member, piece.begin - own.begin, piece.count));
      }
    }
    // What this rank divided itself was local work, as this is: it is done anyway.
    const bool is_local = out.steps()[after].kind == step_kind::divide;
    return is_local ? out.reduce({&piece, 1}, places_, false) : out.reduce({&piece, 1}, places_, false, {after});
  }

  std::vector<std::size_t> pieces_;
  std::vector<std::size_t> ring_pieces_;
  std::vector<int> ring_;
  std::vector<operand> places_;
  std::vector<schedule::index> after_;
};

}  // namespace gradweave
