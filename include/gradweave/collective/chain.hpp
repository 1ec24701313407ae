/// @file
/// Chain broadcast: the root sends pieces to its neighbour, which forwards each as soon as it has it. Every rank but
/// the last sends the buffer once, and all links are busy at once: bandwidth-optimal for large buffers.
#pragma once

#include <algorithm>
#include <cstddef>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// `elements` elements of `data` from rank `root` to all, in pieces of `piece_elements`.
inline void chain_broadcast(schedule_world world, int root, std::size_t elements, std::size_t piece_elements,
                            schedule& out) {
  const bool first = world.rank == root;
  const bool last = world.neighbour(1) == root;
  for (std::size_t begin = 0; begin < elements; begin += piece_elements) {
    const operand piece{operand_buffer::data, begin, std::min(piece_elements, elements - begin)};
    if (first && !last) {
      out.send(world.neighbour(1), piece);
    } else if (!first) {
      const schedule::index received = out.receive(world.neighbour(-1), piece);
      if (!last) {
        out.send(world.neighbour(1), piece, {received});
      }
    }
  }
}

}  // namespace gradweave
