/// @file
/// Where the ranks of one emulated communicator meet: collectives by their number, sends and receives by their pair of ranks.
/// What does not fit together never completes, as with NCCL.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/reduce.hpp"

namespace emulated_cuda::detail {

enum class call_sort : std::uint8_t { all_reduce, reduce, reduce_scatter, all_gather, broadcast, send, receive };

/// What must be the same on all ranks.
struct call_signature {
  call_sort sort = call_sort::all_reduce;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t operation = ncclSum;
  int root = 0;

  friend bool operator==(const call_signature&, const call_signature&) = default;
};

/// One rank's part of a collective, a send or a receive.
struct posted_call {
  call_signature signature;
  const std::byte* from = nullptr;  ///< by its alias
  std::byte* to = nullptr;
  int peer = 0;
  bool is_done = false;
  bool is_cancelled = false;  ///< its rank is gone: nobody may touch its memory
};

using posted = std::shared_ptr<posted_call>;

/// One split of a communicator: who has come, and what they asked for.
struct split_meeting {
  struct wish {
    int rank, color, key;
    ncclComm_t made;
  };
  std::vector<wish> wishes;
  bool is_done = false;
};

/// Used with the machine's lock.
struct world {
  explicit world(int ranks) : members(static_cast<std::size_t>(ranks)), next_collective(members.size()) {}

  int size() const { return static_cast<int>(members.size()); }
  bool is_complete() const { return joined == members.size(); }

  /// Takes part of `rank` in the next collective, or a send or receive, and completes what is complete now.
  void post(int rank, const posted& call) {
    if (call->signature.sort == call_sort::send || call->signature.sort == call_sort::receive) {
      post_pairwise(rank, call);
      return;
    }
    const std::uint64_t number = next_collective[static_cast<std::size_t>(rank)]++;
    std::vector<posted>& parts = collectives[number];
    parts.resize(members.size());
    parts[static_cast<std::size_t>(rank)] = call;
    const bool all_fit = std::all_of(parts.begin(), parts.end(), [&](const posted& part) {
      return part != nullptr && !part->is_cancelled && part->signature == call->signature;
    });
    if (all_fit) {
      perform(parts);
      collectives.erase(number);
    }
  }

  std::vector<ncclComm_t> members;
  std::size_t joined = 0;
  bool is_refused = false;  ///< two ranks on one device
  std::map<std::uint64_t, split_meeting> splits;

 private:
  using pair_of_ranks = std::pair<int, int>;

  void post_pairwise(int rank, const posted& call) {
    const bool sends = call->signature.sort == call_sort::send;
    const pair_of_ranks pair = sends ? pair_of_ranks{rank, call->peer} : pair_of_ranks{call->peer, rank};
    (sends ? sent : received)[pair].push_back(call);
    std::deque<posted>& out = sent[pair];
    std::deque<posted>& in = received[pair];
    while (!out.empty() && !in.empty()) {
      const posted from = out.front(), to = in.front();
      if (from->is_cancelled || to->is_cancelled || from->signature.count != to->signature.count ||
          from->signature.type != to->signature.type) {
        return;
      }
      std::memmove(to->to, from->from, from->signature.count * type_bytes(from->signature.type));
      from->is_done = to->is_done = true;
      out.pop_front();
      in.pop_front();
    }
  }

  /// All inputs are read before an output is written, so that any of them may be in place.
  void perform(const std::vector<posted>& parts) const {
    const call_signature& what = parts[0]->signature;
    const std::size_t piece = what.count * type_bytes(what.type);
    std::vector<std::byte> result;
    std::vector<const std::byte*> sources;
    std::transform(parts.begin(), parts.end(), std::back_inserter(sources),
                   [](const posted& each) { return each->from; });
    switch (what.sort) {
      case call_sort::broadcast: {
        const std::byte* const from = sources[static_cast<std::size_t>(what.root)];
        result.assign(from, from + piece);
        break;
      }
      case call_sort::all_gather:
        for (const std::byte* const source : sources) {
          result.insert(result.end(), source, source + piece);
        }
        break;
      default: {
        const std::size_t pieces = what.sort == call_sort::reduce_scatter ? parts.size() : 1;
        result.resize(pieces * piece);
        reduce(what.type, what.operation, sources, result.data(), pieces * what.count);
      }
    }
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      parts[rank]->is_done = true;
      if (what.sort == call_sort::reduce_scatter) {
        std::memcpy(parts[rank]->to, result.data() + rank * piece, piece);
      } else if (what.sort != call_sort::reduce || static_cast<int>(rank) == what.root) {
        std::memcpy(parts[rank]->to, result.data(), result.size());
      }
    }
  }

  std::vector<std::uint64_t> next_collective;
  std::map<std::uint64_t, std::vector<posted>> collectives;
  std::map<pair_of_ranks, std::deque<posted>> sent, received;
};

}  // namespace emulated_cuda::detail
