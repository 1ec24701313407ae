/// @file
/// Which schedule serves a request: a fixed choice by collective, ranks, bytes and who shares memory with whom, so that
/// results do not depend on timing.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/algorithm.hpp>
#include <gradweave/collective/chain.hpp>
#include <gradweave/collective/composed.hpp>
#include <gradweave/collective/direct.hpp>
#include <gradweave/collective/dissemination.hpp>
#include <gradweave/collective/halving_doubling.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/pairwise.hpp>
#include <gradweave/collective/recursive_doubling.hpp>
#include <gradweave/collective/ring.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/shared.hpp>
#include <gradweave/collective/tree.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// The collectives that schedules exist for.
inline constexpr collective_set scheduled_collectives = {
    collective::all_reduce, collective::reduce_scatter, collective::all_gather, collective::all_to_all,
    collective::broadcast,  collective::barrier,        collective::gather};

/// Makes the schedule of a request. Holds the memory that schedules are made in, so that it is reused.
class schedule_selector {
 public:
  /// How much of a broadcast is forwarded at once.
  static constexpr std::size_t broadcast_piece_bytes = std::size_t{256} << 10;
  /// Up to here a broadcast goes down a tree.
  static constexpr std::size_t tree_bytes_max = std::size_t{64} << 10;

  /// `groups` are the ranks that share memory; none where no ranks do. `forced` is for the sums.
  explicit schedule_selector(std::optional<rank_groups> groups = {},
                             all_reduce_algorithm forced = all_reduce_algorithm::automatic)
      : groups_(std::move(groups)), forced_(forced) {
    const std::size_t count = groups_ ? groups_->count() : 0;
    require(forced != all_reduce_algorithm::shared || count == 1, "algorithm 'shared': not all ranks share memory");
    require(forced != all_reduce_algorithm::hierarchical || count > 0,
            "algorithm 'hierarchical': no ranks share memory");
  }

  /// What sums `bytes` bytes over all ranks.
  all_reduce_algorithm choose(schedule_world world, std::size_t bytes) const {
    if (forced_ != all_reduce_algorithm::automatic) {
      return forced_;
    }
    if (groups_ && groups_->count() != static_cast<std::size_t>(world.size)) {
      return groups_->count() == 1 ? all_reduce_algorithm::shared : all_reduce_algorithm::hierarchical;
    }
    return choose_by_messages(world.size, bytes);
  }

  /// What sums how much, for people: "recursive_doubling to 64 KiB, ring above".
  std::string choices(schedule_world world) const {
    constexpr std::size_t kibibyte = std::size_t{1} << 10;
    constexpr std::size_t mebibyte = std::size_t{1} << 20;
    constexpr std::size_t bytes_max = std::size_t{1} << 30;
    std::string text;
    for (std::size_t bytes = kibibyte; bytes < bytes_max; bytes *= 2) {
      if (const auto chosen = choose(world, bytes); chosen != choose(world, bytes + 1)) {
        const auto limit =
            bytes < mebibyte ? std::to_string(bytes / kibibyte) + " KiB" : std::to_string(bytes / mebibyte) + " MiB";
        text += std::string(to_string(chosen)) + " to " + limit + ", ";
      }
    }
    return text + std::string(to_string(choose(world, bytes_max))) + (text.empty() ? "" : " above");
  }

  /// The schedule stays valid until the next call.
  const schedule& select(schedule_world world, const collective_request& request) {
    const std::size_t elements = total_bytes(request.data) / element_bytes(request.kind);
    schedule_.clear();
    if (request.operation == collective::all_reduce) {
      all_reduce(world, elements, choose(world, elements * element_bytes(request.kind)));
    } else if (is_shared()) {
      select_shared(world, request, elements);
    } else if (is_composed(world)) {
      select_composed(world, request, elements);
    } else {
      select_messages(world, request, elements);
    }
    return schedule_;
  }

 private:
  /// All ranks share memory, and nothing else is forced.
  bool is_shared() const {
    return groups_ && groups_->count() == 1 &&
           (forced_ == all_reduce_algorithm::automatic || forced_ == all_reduce_algorithm::shared);
  }

  /// Some ranks share memory, not all, and nothing else is forced.
  bool is_composed(schedule_world world) const {
    return groups_ && groups_->count() > 1 && groups_->count() < static_cast<std::size_t>(world.size) &&
           (forced_ == all_reduce_algorithm::automatic || forced_ == all_reduce_algorithm::hierarchical);
  }

  void all_reduce(schedule_world world, std::size_t elements, all_reduce_algorithm chosen) {
    switch (chosen) {
      case all_reduce_algorithm::shared:
        cut_evenly(elements, world.size, pieces_);
        shared_.all_reduce(groups_->members(0), world.rank, pieces_, schedule_);
        break;
      case all_reduce_algorithm::hierarchical:
        hierarchical_.all_reduce(*groups_, world.rank, elements, schedule_);
        break;
      case all_reduce_algorithm::recursive_doubling: recursive_doubling_all_reduce(world, elements, schedule_); break;
      case all_reduce_algorithm::halving_doubling:
        cut_evenly(elements, folded_world(world).size(), pieces_);
        halving_doubling_all_reduce(world, pieces_, schedule_);
        break;
      case all_reduce_algorithm::direct:
        cut_evenly(elements, world.size, pieces_);
        direct_.all_reduce(world, pieces_, schedule_);
        break;
      case all_reduce_algorithm::automatic:
      case all_reduce_algorithm::ring:
        cut_evenly(elements, world.size, pieces_);
        ring_all_reduce(world, pieces_, schedule_);
        break;
    }
  }

  void select_shared(schedule_world world, const collective_request& request, std::size_t elements) {
    const auto members = groups_->members(0);
    switch (request.operation) {
      case collective::reduce_scatter: shared_.reduce_scatter(members, world.rank, request.pieces, schedule_); break;
      case collective::all_gather: shared_.all_gather(members, world.rank, request.pieces, schedule_); break;
      case collective::all_to_all:
        shared_.all_to_all(members, world.rank, request.source_pieces, request.pieces, schedule_);
        break;
      case collective::broadcast:
        shared_schedules::broadcast(members, world.rank, request.root, elements, schedule_);
        break;
      case collective::gather:
        shared_schedules::gather(members, world.rank, request.root, request.pieces, schedule_);
        break;
      case collective::barrier: shared_schedules::barrier(members, world.rank, schedule_); break;
      case collective::all_reduce: break;
    }
  }

  void select_composed(schedule_world world, const collective_request& request, std::size_t elements) {
    const int rank = world.rank;
    switch (request.operation) {
      case collective::reduce_scatter: composed_.reduce_scatter(*groups_, rank, request.pieces, schedule_); break;
      case collective::all_gather: composed_.all_gather(*groups_, rank, request.pieces, schedule_); break;
      case collective::all_to_all:
        composed_schedules::all_to_all(*groups_, rank, request.source_pieces, request.pieces, schedule_);
        break;
      case collective::broadcast: {
        const std::size_t bytes = element_bytes(request.kind);
        composed_.broadcast(*groups_, rank, request.root, elements, tree_bytes_max / bytes,
                            broadcast_piece_bytes / bytes, schedule_);
        break;
      }
      case collective::gather:
        composed_schedules::gather(*groups_, rank, request.root, request.pieces, schedule_);
        break;
      case collective::barrier: composed_.barrier(*groups_, rank, schedule_); break;
      case collective::all_reduce: break;
    }
  }

  void select_messages(schedule_world world, const collective_request& request, std::size_t elements) {
    switch (request.operation) {
      case collective::reduce_scatter:
        if (forced_ == all_reduce_algorithm::direct) {
          direct_.reduce_scatter(world, request.pieces, schedule_);
        } else {
          ring_reduce_scatter(world, request.pieces, schedule_);
        }
        break;
      case collective::all_gather: ring_all_gather(world, request.pieces, schedule_); break;
      case collective::all_to_all: pairwise_all_to_all(world, request.source_pieces, request.pieces, schedule_); break;
      case collective::broadcast:
        if (elements * element_bytes(request.kind) <= tree_bytes_max) {
          binomial_broadcast(world, request.root, elements, schedule_);
        } else {
          chain_broadcast(world, request.root, elements, broadcast_piece_bytes / element_bytes(request.kind),
                          schedule_);
        }
        break;
      case collective::gather: pairwise_gather(world, request.root, request.pieces, schedule_); break;
      case collective::barrier: dissemination_barrier(world, schedule_); break;
      case collective::all_reduce: break;
    }
  }

  std::optional<rank_groups> groups_;
  all_reduce_algorithm forced_;
  schedule schedule_;
  std::vector<std::size_t> pieces_;
  shared_schedules shared_;
  hierarchical_schedules hierarchical_;
  composed_schedules composed_;
  direct_schedules direct_;
};

}  // namespace gradweave
