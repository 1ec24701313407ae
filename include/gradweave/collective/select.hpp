/// @file
/// Which schedule serves a request: a fixed choice, so that results do not depend on timing.
#pragma once

#include <cstddef>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/chain.hpp>
#include <gradweave/collective/dissemination.hpp>
#include <gradweave/collective/pairwise.hpp>
#include <gradweave/collective/ring.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// The collectives that schedules exist for.
inline constexpr collective_set scheduled_collectives = {collective::all_reduce, collective::reduce_scatter,
                                                         collective::all_gather, collective::all_to_all,
                                                         collective::broadcast,  collective::barrier};

/// Makes the schedule of a request. Holds the memory that schedules are made in, so that it is reused.
class schedule_selector {
 public:
  /// How much of a broadcast is forwarded at once.
  static constexpr std::size_t broadcast_piece_bytes = std::size_t{256} << 10;

  /// The schedule stays valid until the next call.
  const schedule& select(schedule_world world, const collective_request& request) {
    const std::size_t elements = total_bytes(request.data) / element_bytes(request.kind);
    switch (request.operation) {
      case collective::all_reduce:
        cut_evenly(elements, world.size, pieces_);
        ring_all_reduce(world, pieces_, schedule_);
        break;
      case collective::reduce_scatter: ring_reduce_scatter(world, request.pieces, schedule_); break;
      case collective::all_gather: ring_all_gather(world, request.pieces, schedule_); break;
      case collective::all_to_all: pairwise_all_to_all(world, request.source_pieces, request.pieces, schedule_); break;
      case collective::broadcast:
        chain_broadcast(world, request.root, elements, broadcast_piece_bytes / element_bytes(request.kind), schedule_);
        break;
      case collective::barrier: dissemination_barrier(world, schedule_); break;
    }
    return schedule_;
  }

 private:
  schedule schedule_;
  std::vector<std::size_t> pieces_;
};

}  // namespace gradweave
