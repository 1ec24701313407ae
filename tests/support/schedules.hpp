/// @file
/// Schedules of all ranks of a world, for the tests of each algorithm.
#pragma once

#include <cstddef>
#include <vector>

#include <gradweave/collective/schedule.hpp>

namespace gradweave::tests {

/// `make(schedule_world, schedule&)` for every rank.
template <class Make>
std::vector<schedule> schedules_of_all(int size, Make&& make) {
  std::vector<schedule> ranks(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    make(schedule_world{rank, size}, ranks[static_cast<std::size_t>(rank)]);
  }
  return ranks;
}

/// World sizes that every algorithm is proved for.
inline std::vector<int> proved_sizes() {
  std::vector<int> sizes;
  for (int size = 1; size <= 33; ++size) {
    sizes.push_back(size);
  }
  sizes.push_back(64);
  return sizes;
}

/// Element counts that hit the edges: none, fewer than ranks, around the granule, uneven.
inline std::vector<std::size_t> proved_counts() { return {0, 1, 3, 16, 17, 1000, 4099}; }

/// The same cut for every rank.
inline std::vector<std::vector<std::size_t>> for_all(int size, const std::vector<std::size_t>& pieces) {
  return std::vector<std::vector<std::size_t>>(static_cast<std::size_t>(size), pieces);
}

/// Pieces of very different lengths, some empty: rank r has r * 7 % 5 * scale elements.
inline std::vector<std::size_t> uneven_pieces(int size, std::size_t scale) {
  std::vector<std::size_t> pieces{0};
  for (int r = 0; r < size; ++r) {
    pieces.push_back(pieces.back() + static_cast<std::size_t>(r * 7 % 5) * scale);
  }
  return pieces;
}

}  // namespace gradweave::tests
