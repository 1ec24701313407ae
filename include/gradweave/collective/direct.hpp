/// @file
/// Direct schedules: each rank owns a piece, gets all contributions to it and combines them in rank order. One round of
/// all-to-all, one of all-gather. The result depends neither on how a buffer is cut nor on timing: an element is always
/// ((r0 + r1) + r2) + ... A rank sends 2 (N-1)/N of the buffer, in 2 (N-1) messages.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// Makes them. Holds the memory for it, so that it is reused.
class direct_schedules {
 public:
  /// Rank r ends with piece r; `scratch` needs N - 1 times the longest piece.
  void reduce_scatter(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
    sum(world, pieces, out);
  }

  void all_reduce(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
    const schedule::index sent = out.next();
    const schedule::index summed = sum(world, pieces, out);
    for (int distance = 1; distance < world.size; ++distance) {
      const int to = world.neighbour(distance);
      const int from = world.neighbour(-distance);
      out.send(to, piece_of(pieces, world.rank), {summed});
      // Its contribution to that piece must have left: the send to `from` was in round N - distance.
      const auto round = static_cast<schedule::index>(world.size - distance - 1);
      out.receive(from, piece_of(pieces, from), {sent + 2 * round});
    }
  }

 private:
  schedule::index sum(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
    const operand own = piece_of(pieces, world.rank);
    sources_.assign(static_cast<std::size_t>(world.size), own);
    received_.clear();
    for (int distance = 1; distance < world.size; ++distance) {
      const int to = world.neighbour(distance);
      const int from = world.neighbour(-distance);
      out.send(to, piece_of(pieces, to));
      const operand place{operand_buffer::scratch, static_cast<std::size_t>(distance - 1) * own.count, own.count};
      sources_[static_cast<std::size_t>(from)] = place;
      received_.push_back(out.receive(from, place));
    }
    return out.reduce(sources_, {&own, 1}, true, received_);
  }

  std::vector<operand> sources_;
  std::vector<schedule::index> received_;
};

}  // namespace gradweave
