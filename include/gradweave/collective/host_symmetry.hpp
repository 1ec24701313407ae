/// @file
/// Whether hosts do the same: the schedule of each rank is that of the rank with its place on the first host, every peer
/// moved by as many ranks as lie between them. Then one host's ranks stand for all.
#pragma once

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// Whether `moved` is `original` with each peer and lender moved by `distance` on the ring of `size` ranks. Where operands
/// begin and in which order they are combined does not count: it costs no time.
inline bool is_moved_by(const schedule& original, const schedule& moved, int distance, int size) {
  const auto peer = [&](int rank, int by) { return rank < 0 ? rank : (rank + by) % size; };
  const auto key = [&](const operand& range, int by) {
    return std::tuple(range.buffer, range.count, peer(range.lender, by));
  };
  const auto same = [&](std::span<const operand> ranges, std::span<const operand> others) {
    if (ranges.size() != others.size()) {
      return false;
    }
    std::vector<decltype(key({}, 0))> left, right;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      left.push_back(key(ranges[i], distance));
      right.push_back(key(others[i], 0));
    }
    std::ranges::sort(left);
    std::ranges::sort(right);
    return left == right;
  };
  return std::ranges::equal(original.steps(), moved.steps(), [&](const schedule_step& a, const schedule_step& b) {
    return a.kind == b.kind && peer(a.peer, distance) == b.peer && a.divides == b.divides &&
           key(a.source, distance) == key(b.source, 0) && key(a.target, distance) == key(b.target, 0) &&
           std::ranges::equal(original.dependencies(a), moved.dependencies(b)) &&
           same(original.sources(a), moved.sources(b)) && same(original.targets(a), moved.targets(b));
  });
}

/// Which hosts are compared with the first one: all up to 64, of more the nearest, the last, and some between.
inline std::set<int> hosts_compared(int hosts) {
  std::set<int> chosen;
  if (hosts <= 64) {
    for (int host = 1; host < hosts; ++host) {
      chosen.insert(host);
    }
    return chosen;
  }
  constexpr int between = 3;
  chosen = {1, 2, hosts - 1};
  for (int i = 1; i <= between; ++i) {
    chosen.insert(i * hosts / (between + 1));
  }
  return chosen;
}

/// Whether the schedules that `make(schedule_world, schedule&)` makes are the same on all hosts in that sense, as far as
/// `hosts_compared` shows it.
template <class Make>
bool has_host_symmetry(const host_topology& topology, Make&& make) {
  if (!topology.is_even()) {
    return false;
  }
  schedule original, moved;
  const int size = topology.ranks();
  const std::set<int> hosts = hosts_compared(topology.hosts());
  for (int rank = 0; rank < topology.ranks_of(0) && !hosts.empty(); ++rank) {
    original.clear();
    make(schedule_world{rank, size}, original);
    for (const int host : hosts) {
      const int distance = topology.first_rank(host);
      moved.clear();
      make(schedule_world{rank + distance, size}, moved);
      if (!is_moved_by(original, moved, distance, size)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace gradweave
