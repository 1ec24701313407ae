/// @file
/// Pairwise all-to-all: in round d every rank sends to the rank d ahead and receives from the rank d behind, straight
/// to the destination. Each rank sends every piece but its own once. And gather, where all send to one.
#pragma once

#include <cstddef>
#include <span>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// Piece r of `source` goes to rank r; piece r of `data` comes from rank r.
inline void pairwise_all_to_all(schedule_world world, std::span<const std::size_t> source_pieces,
                                std::span<const std::size_t> pieces, schedule& out) {
  out.copy(piece_of(source_pieces, world.rank, operand_buffer::source), piece_of(pieces, world.rank));
  for (int distance = 1; distance < world.size; ++distance) {
    const int to = world.neighbour(distance);
    const int from = world.neighbour(-distance);
    out.send(to, piece_of(source_pieces, to, operand_buffer::source));
    out.receive(from, piece_of(pieces, from));
  }
}

/// Rank r's piece r goes to `root`.
inline void pairwise_gather(schedule_world world, int root, std::span<const std::size_t> pieces, schedule& out) {
  if (world.rank != root) {
    out.send(root, piece_of(pieces, world.rank));
    return;
  }
  for (int distance = 1; distance < world.size; ++distance) {
    const int from = world.neighbour(distance);
    out.receive(from, piece_of(pieces, from));
  }
}

}  // namespace gradweave
