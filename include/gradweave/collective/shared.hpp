/// @file
/// Schedules for ranks that share memory: peers' buffers are read and written in place, so there is one round and every
/// byte moves as seldom as it can. A rank reduces its piece from all buffers, in rank order, and writes the result into
/// all of them.
///
/// `members` are the ranks that take part, in rank order; pieces are cut for them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// What `lender` lends, or a part of it.
inline operand borrowed(int lender, std::size_t begin, std::size_t count) {
  return {operand_buffer::data, begin, count, lender};
}

/// Makes them. Holds the memory for it, so that it is reused.
class shared_schedules {
 public:
  void all_reduce(std::span<const int> members, int rank, std::span<const std::size_t> pieces, schedule& out) {
    lend_pieces(members, rank, pieces, &schedule::lend_to_update, out);
    if (const operand own = own_piece(members, rank, pieces); own.count != 0) {
      collect(members, rank, own);
      const schedule::index summed = out.reduce(places_, places_, true);
      give_back(members, rank, summed, out);
    }
  }

  void reduce_scatter(std::span<const int> members, int rank, std::span<const std::size_t> pieces, schedule& out) {
    lend_pieces(members, rank, pieces, &schedule::lend_to_read, out);
    if (const operand own = own_piece(members, rank, pieces); own.count != 0) {
      collect(members, rank, own);
      const schedule::index summed = out.reduce(places_, {&own, 1}, true);
      give_back(members, rank, summed, out);
    }
  }

  void all_gather(std::span<const int> members, int rank, std::span<const std::size_t> pieces, schedule& out) {
    lend_pieces(members, rank, pieces, &schedule::lend_to_write, out);
    const operand own = own_piece(members, rank, pieces);
    if (own.count != 0 && members.size() > 1) {
      collect_peers(members, rank, own);
      const schedule::index copied = out.reduce({&own, 1}, places_, false);
      give_back(members, rank, copied, out);
    }
  }

  void all_to_all(std::span<const int> members, int rank, std::span<const std::size_t> source_pieces,
                  std::span<const std::size_t> pieces, schedule& out) {
    const auto size = static_cast<int>(members.size());
    for (int i = 0; i < size; ++i) {
      const operand source = piece_of(source_pieces, i, operand_buffer::source);
      if (const int peer = members[static_cast<std::size_t>(i)]; peer != rank && source.count != 0) {
        out.lend_to_read(peer, source);
      }
    }
    for (int i = 0; i < size; ++i) {
      const int peer = members[static_cast<std::size_t>(i)];
      const operand target = piece_of(pieces, i);
      if (peer == rank) {
        out.copy(piece_of(source_pieces, i, operand_buffer::source), target);
      } else if (target.count != 0) {
        const schedule::index copied = out.copy(borrowed(peer, 0, target.count), target);
        out.give_back(peer, {copied});
      }
    }
  }

  static void broadcast(std::span<const int> members, int rank, int root, std::size_t elements, schedule& out) {
    const operand whole{operand_buffer::data, 0, elements};
    if (elements == 0) {
      return;
    }
    if (rank != root) {
      const schedule::index copied = out.copy(borrowed(root, 0, elements), whole);
      out.give_back(root, {copied});
      return;
    }
    for (const int peer : members) {
      if (peer != root) {
        out.lend_to_read(peer, whole);
      }
    }
  }

  static void gather(std::span<const int> members, int rank, int root, std::span<const std::size_t> pieces,
                     schedule& out) {
    if (rank == root) {
      lend_pieces(members, rank, pieces, &schedule::lend_to_write, out);
    } else if (const operand own = own_piece(members, rank, pieces); own.count != 0) {
      const schedule::index copied = out.copy(own, borrowed(root, 0, own.count));
      out.give_back(root, {copied});
    }
  }

  /// Nothing is lent; but who gives it back has come.
  static void barrier(std::span<const int> members, int rank, schedule& out) {
    for (const int peer : members) {
      if (peer != rank) {
        out.lend_to_read(peer, {});
        out.give_back(peer);
      }
    }
  }

 private:
  static operand own_piece(std::span<const int> members, int rank, std::span<const std::size_t> pieces) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (members[i] == rank) {
        return piece_of(pieces, static_cast<int>(i));
      }
    }
    return {};
  }

  /// To each member its piece of the own buffer, where there is any.
  static void lend_pieces(std::span<const int> members, int rank, std::span<const std::size_t> pieces,
                          schedule::index (schedule::*lend)(int, operand), schedule& out) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      const operand piece = piece_of(pieces, static_cast<int>(i));
      if (members[i] != rank && piece.count != 0) {
        (out.*lend)(members[i], piece);
      }
    }
  }

  /// Where all members have the piece that is this rank's own, in rank order.
  void collect(std::span<const int> members, int rank, const operand& own) {
    places_.clear();
    for (const int member : members) {
      places_.push_back(member == rank ? own : borrowed(member, 0, own.count));
    }
  }

  void collect_peers(std::span<const int> members, int rank, const operand& own) {
    collect(members, rank, own);
    std::erase_if(places_, [](const operand& place) { return place.lender < 0; });
  }

  static void give_back(std::span<const int> members, int rank, schedule::index after, schedule& out) {
    for (const int member : members) {
      if (member != rank) {
        out.give_back(member, {after});
      }
    }
  }

  std::vector<operand> places_;
};

}  // namespace gradweave
