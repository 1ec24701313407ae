/// @file
/// Binomial tree broadcast: who has the buffer sends it to as many as have it not, round by round. ceil(log2 N) rounds of
/// the whole buffer: for small ones.
#pragma once

#include <cstddef>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// `elements` elements of `data` from rank `root` to all.
inline void binomial_broadcast(schedule_world world, int root, std::size_t elements, schedule& out) {
  const operand whole{operand_buffer::data, 0, elements};
  const schedule_world from_root{(world.rank - root + world.size) % world.size, world.size};
  // The root's number is 0; who has k low zero bits in its number sends to k others.
  int distance = 1;
  while (distance < world.size && (from_root.rank & distance) == 0) {
    distance *= 2;
  }
  const bool receives = from_root.rank != 0;
  const schedule::index received = receives ? out.receive(world.neighbour(-distance), whole) : 0;
  for (distance /= 2; distance >= 1; distance /= 2) {
    if (from_root.rank + distance < world.size) {
      receives ? out.send(world.neighbour(distance), whole, {received}) : out.send(world.neighbour(distance), whole);
    }
  }
}

}  // namespace gradweave
