/// @file
/// The algorithms of an all-reduce by name, and which one serves where nothing is said.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gradweave {

/// How a buffer is summed over all ranks.
enum class all_reduce_algorithm : std::uint8_t {
  automatic,           ///< by ranks, bytes and who shares memory
  ring,                ///< the fewest bytes, 2 (N-1) rounds
  halving_doubling,    ///< the fewest bytes where N is a power of two, 2 log2 N rounds
  recursive_doubling,  ///< the fewest rounds, log2 N, of all bytes each
  direct,              ///< messages to the owner of each piece; contributions are added in rank order
  shared,              ///< in memory that all ranks share; contributions are added in rank order
  hierarchical,        ///< in shared memory within a host, by a ring between hosts
};

inline constexpr std::array<std::string_view, 7> algorithm_names = {
    "automatic", "ring", "halving_doubling", "recursive_doubling", "direct", "shared", "hierarchical"};

constexpr std::string_view to_string(all_reduce_algorithm which) {
  return algorithm_names[static_cast<std::size_t>(which)];
}

/// Nothing where there is none of that name.
constexpr std::optional<all_reduce_algorithm> algorithm_named(std::string_view name) {
  for (std::size_t i = 0; i < algorithm_names.size(); ++i) {
    if (algorithm_names[i] == name) {
      return static_cast<all_reduce_algorithm>(i);
    }
  }
  return std::nullopt;
}

namespace detail {

/// What the latency of one round is worth: as many bytes as pass meanwhile. A network of 10 Gbit/s and 26 us has this.
inline constexpr std::size_t bytes_a_round = std::size_t{32} << 10;

/// What an all-reduce by messages takes, in the time of a byte: rounds and bytes on the way that takes longest (closed
/// formulas of Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005).
constexpr double time_in_bytes(all_reduce_algorithm which, int ranks, std::size_t bytes) {
  const int unfolded = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
  const int doublings = static_cast<int>(std::bit_width(static_cast<unsigned>(unfolded))) - 1;
  const int folds = ranks == unfolded ? 0 : 2;
  const auto time = [&](double rounds, double buffers) {
    return rounds * static_cast<double>(bytes_a_round) + buffers * static_cast<double>(bytes);
  };
  switch (which) {
    case all_reduce_algorithm::recursive_doubling: return time(doublings + folds, doublings + folds);
    case all_reduce_algorithm::halving_doubling:
      return time(2 * doublings + folds, 2.0 * (unfolded - 1) / unfolded + folds);
    default: return time(2 * (ranks - 1), 2.0 * (ranks - 1) / ranks);
  }
}

}  // namespace detail

/// For ranks that exchange messages: what takes the shortest by rounds and bytes. A ring, where each rank has one
/// neighbour to send to whatever else crosses the network, unless another takes a sixteenth less. One nominal network, so
/// that the same job gives the same bits everywhere; and by the next power of two of `bytes`, so that limits are round.
constexpr all_reduce_algorithm choose_by_messages(int ranks, std::size_t bytes) {
  using enum all_reduce_algorithm;
  const auto time = [&](all_reduce_algorithm which) {
    return detail::time_in_bytes(which, ranks, std::bit_ceil(bytes));
  };
  const auto fewer_rounds = time(recursive_doubling) <= time(halving_doubling) ? recursive_doubling : halving_doubling;
  return time(fewer_rounds) <= time(ring) * 15 / 16 ? fewer_rounds : ring;
}

/// How many elements all ranks together send, by messages, in an all-reduce of `elements`.
constexpr std::size_t elements_sent(all_reduce_algorithm which, int ranks, std::size_t elements) {
  const auto all = static_cast<std::size_t>(ranks);
  const std::size_t unfolded = std::bit_floor(all);  // of the rest each sends all it has once, and gets all back
  switch (which) {
    case all_reduce_algorithm::recursive_doubling:
      return (unfolded * static_cast<std::size_t>(std::bit_width(unfolded) - 1) + 2 * (all - unfolded)) * elements;
    case all_reduce_algorithm::halving_doubling:
    case all_reduce_algorithm::ring:
    case all_reduce_algorithm::direct:
    case all_reduce_algorithm::shared:  // where it moves them in memory
    case all_reduce_algorithm::automatic:
    case all_reduce_algorithm::hierarchical: break;
  }
  return 2 * (all - 1) * elements;
}

}  // namespace gradweave
