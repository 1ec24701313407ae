/// @file
/// Ring schedules: in each of size - 1 rounds every rank sends one piece ahead and receives one from behind.
///
/// A rank sends 2 (N-1)/N of the buffer for an all-reduce, (N-1)/N for a reduce-scatter or all-gather; that is the
/// least that any algorithm needs (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, JPDC 2009, section 3).
/// The sum's order depends on the piece alone, so all ranks get the same bits.
#pragma once

#include <cstddef>
#include <span>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// A rank's place in a ring, which may lead through some of the ranks only.
struct ring_place {
  int position = 0;
  int size = 1;
  int ahead = 0;   ///< the rank to send to
  int behind = 0;  ///< the rank to receive from

  static ring_place of(schedule_world world) {
    return {world.rank, world.size, world.neighbour(1), world.neighbour(-1)};
  }
  static ring_place of(std::span<const int> members, int position) {
    const schedule_world place{position, static_cast<int>(members.size())};
    const auto member = [&](int distance) { return members[static_cast<std::size_t>(place.neighbour(distance))]; };
    return {position, place.size, member(1), member(-1)};
  }
};

namespace detail {

/// Rounds in which partial sums travel; ends with piece `last` summed and divided on this rank. Adds 2 (N-1) + 1 steps:
/// send and receive of each round, then the division, whose index it returns.
inline schedule::index ring_sum(ring_place ring, std::span<const std::size_t> pieces, int last,
                                schedule::after_steps after, schedule& out) {
  const schedule_world piece{last, ring.size};
  schedule::index received = 0;
  for (int round = 0; round < ring.size - 1; ++round) {
    const operand sent = piece_of(pieces, piece.neighbour(-1 - round));
    const operand summed = piece_of(pieces, piece.neighbour(-2 - round));
    if (round == 0) {
      out.send(ring.ahead, sent, after);
      received = out.receive_reduce(ring.behind, summed, after);
    } else {
      out.send(ring.ahead, sent, {received});
      received = out.receive_reduce(ring.behind, summed);
    }
  }
  const operand own = piece_of(pieces, last);
  return ring.size == 1 ? out.divide(own, after) : out.divide(own, {received});
}

struct ignore_final {
  void operator()(int, schedule::index) const {}
};

}  // namespace detail

/// Rank r ends with piece r, summed and divided; the other pieces hold partial sums.
inline void ring_reduce_scatter(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  detail::ring_sum(ring_place::of(world), pieces, world.rank, {}, out);
}

/// Rank r begins with piece r; all end with all pieces.
inline void ring_all_gather(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  schedule::index received = 0;
  for (int round = 0; round < world.size - 1; ++round) {
    const operand sent = piece_of(pieces, world.neighbour(-round));
    if (round == 0) {
      out.send(world.neighbour(1), sent);
    } else {
      out.send(world.neighbour(1), sent, {received});
    }
    received = out.receive(world.neighbour(-1), piece_of(pieces, world.neighbour(-1 - round)));
  }
}

/// A reduce-scatter that leaves piece r + 1 at position r, then an all-gather of those. Begins after the steps `after`,
/// and calls `final(piece, step)` for each piece with the step that makes it final on this rank.
template <class Final = detail::ignore_final>
void ring_all_reduce(ring_place ring, std::span<const std::size_t> pieces, schedule& out,
                     schedule::after_steps after = {}, Final&& final = {}) {
  const schedule::index first = out.next();
  const schedule_world piece{(ring.position + 1) % ring.size, ring.size};
  schedule::index ready = detail::ring_sum(ring, pieces, piece.rank, after, out);
  final(piece.rank, ready);
  for (int round = 0; round < ring.size - 1; ++round) {
    out.send(ring.ahead, piece_of(pieces, piece.neighbour(-round)), {ready});
    // The piece that comes in was sent ahead as a partial sum in the same round of the first half: it must have left.
    const auto sent_before = static_cast<schedule::index>(first + 2 * static_cast<schedule::index>(round));
    ready = out.receive(ring.behind, piece_of(pieces, piece.neighbour(-1 - round)), {sent_before});
    final(piece.neighbour(-1 - round), ready);
  }
}

inline void ring_all_reduce(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  ring_all_reduce(ring_place::of(world), pieces, out);
}

}  // namespace gradweave
