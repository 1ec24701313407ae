/// @file
/// Dissemination barrier (Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, 1988): in round k
/// every rank tells the rank 2^k ahead that it, and all that it has heard of, have arrived. ceil(log2 N) rounds.
#pragma once

#include <cstddef>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// Tokens of one element travel; each is received into a place of its own. A rank has arrived after the steps `after`.
inline void dissemination_barrier(schedule_world world, schedule& out, schedule::after_steps after = {}) {
  constexpr operand token{operand_buffer::scratch, 0, 1};
  std::size_t place = 1;
  schedule::index received = 0;
  for (int distance = 1; distance < world.size; distance *= 2, ++place) {
    const int to = world.neighbour(distance);
    const int from = world.neighbour(-distance);
    const operand heard{operand_buffer::scratch, place, 1};
    if (distance == 1) {
      out.send(to, token, after);
      received = out.receive(from, heard, after);
    } else {
      // Only who has heard of everyone in the rounds before may speak for them.
      out.send(to, token, {received});
      received = out.receive(from, heard, {received});
    }
  }
}

}  // namespace gradweave
