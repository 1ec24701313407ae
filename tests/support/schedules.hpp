/// @file
/// Schedules of all ranks of a world, for the tests of each algorithm.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/collective/proof.hpp>
#include <gradweave/collective/schedule.hpp>

#include "tests/support/brief.hpp"

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

/// Makes the schedules of all ranks as above, and proves them. The result says what they send.
template <class Make>
proof check_proof(int size, const collective_claim& claim, Make&& make) {
  const proof result = prove(schedules_of_all(size, make), claim);
  CAPTURE(size);
  CAPTURE(claim.root);
  CAPTURE(claim.elements);
  CHECK_MESSAGE(result.holds(), result.fault);
  return result;
}

/// World sizes that every algorithm is proved for; a few of them where tests are brief.
inline std::vector<int> proved_sizes() {
  if (is_brief()) {
    return {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 64};
  }
  std::vector<int> sizes(33);
  std::iota(sizes.begin(), sizes.end(), 1);
  sizes.insert(sizes.end(), {64, 127, 128, 1000});
  return sizes;
}

/// For algorithms in which each rank deals with each other: a million pairs of 1,000 ranks take ten seconds, and are left
/// to full runs (GRADWEAVE_TEST_FULL).
inline std::vector<int> proved_sizes_of_pairs() {
  std::vector<int> sizes = proved_sizes();
  if (std::getenv("GRADWEAVE_TEST_FULL") == nullptr) {
    std::erase_if(sizes, [](int size) { return size > 128; });
  }
  return sizes;
}

/// Element counts that hit the edges: none, fewer than ranks, around the granule, uneven.
inline std::vector<std::size_t> proved_counts(int size) {
  if (size <= 33) {
    return {0, 1, 3, 16, 17, 1000, 4099};
  }
  return size <= 128 ? std::vector<std::size_t>{1, 1000, 16411} : std::vector<std::size_t>{9001};
}

/// By how much pieces of uneven length are stretched; 0 makes them empty.
inline std::vector<std::size_t> proved_scales(int size) {
  return size <= 128 ? std::vector<std::size_t>{0, 1, 19} : std::vector<std::size_t>{1};
}

/// Ranks dealt to hosts one after another, hosts of these sizes in turn.
inline std::vector<int> hosts_of(int size, const std::vector<int>& host_sizes) {
  std::vector<int> host_of;
  for (std::size_t host = 0; static_cast<int>(host_of.size()) < size; ++host) {
    const int room = std::min(host_sizes[host % host_sizes.size()], size - static_cast<int>(host_of.size()));
    host_of.insert(host_of.end(), static_cast<std::size_t>(room), static_cast<int>(host));
  }
  return host_of;
}

/// All ranks, as those that share memory.
inline std::vector<int> all_members(int size) {
  std::vector<int> members(static_cast<std::size_t>(size));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

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

/// An all-to-all in which every pair exchanges another length.
struct all_to_all_cut {
  std::vector<std::vector<std::size_t>> pieces;
  std::vector<std::vector<std::size_t>> source_pieces;
  std::size_t moved = 0;  ///< elements that leave their rank
};

inline all_to_all_cut all_to_all_cuts(int size, std::size_t scale = 1) {
  const auto length = [&](int from, int to) { return static_cast<std::size_t>((from * 3 + to * 5) % 7) * scale; };
  all_to_all_cut cut;
  for (int rank = 0; rank < size; ++rank) {
    auto& in = cut.pieces.emplace_back(1, 0);
    auto& out = cut.source_pieces.emplace_back(1, 0);
    for (int peer = 0; peer < size; ++peer) {
      in.push_back(in.back() + length(peer, rank));
      out.push_back(out.back() + length(rank, peer));
      cut.moved += peer == rank ? 0 : length(rank, peer);
    }
  }
  return cut;
}

}  // namespace gradweave::tests
