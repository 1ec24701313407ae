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

namespace detail {

/// Rounds in which partial sums travel; ends with piece `last` summed and divided on this rank. Adds 2 (N-1) + 1 steps:
/// send and receive of each round, then the division, whose index it returns.
inline schedule::index ring_sum(schedule_world world, std::span<const std::size_t> pieces, int last, schedule& out) {
  const schedule_world piece{last, world.size};
  schedule::index received = 0;
  for (int round = 0; round < world.size - 1; ++round) {
    const operand sent = piece_of(pieces, piece.neighbour(-1 - round));
    const operand summed = piece_of(pieces, piece.neighbour(-2 - round));
    if (round == 0) {
      out.send(world.neighbour(1), sent);
    } else {
      out.send(world.neighbour(1), sent, {received});
    }
    received = out.receive_reduce(world.neighbour(-1), summed);
  }
  const operand own = piece_of(pieces, last);
  return world.size == 1 ? out.divide(own) : out.divide(own, {received});
}

}  // namespace detail

/// Rank r ends with piece r, summed and divided; the other pieces hold partial sums.
inline void ring_reduce_scatter(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  out.clear();
  detail::ring_sum(world, pieces, world.rank, out);
}

/// Rank r begins with piece r; all end with all pieces.
inline void ring_all_gather(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  out.clear();
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

/// A reduce-scatter that leaves piece r + 1 on rank r, then an all-gather of those.
inline void ring_all_reduce(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  out.clear();
  const int own = world.neighbour(1);
  schedule::index ready = detail::ring_sum(world, pieces, own, out);
  const schedule_world piece{own, world.size};
  for (int round = 0; round < world.size - 1; ++round) {
    out.send(world.neighbour(1), piece_of(pieces, piece.neighbour(-round)), {ready});
    // The piece that comes in was sent ahead as a partial sum in the same round of the first half: it must have left.
    const auto sent_before = static_cast<schedule::index>(2 * round);
    ready = out.receive(world.neighbour(-1), piece_of(pieces, piece.neighbour(-1 - round)), {sent_before});
  }
}

}  // namespace gradweave
