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

/// For ranks that exchange messages. The fewer rounds pay off as long as a round costs more than its bytes. The limits are
/// fixed, so that the same job gives the same bits everywhere; they are not tuned to any network.
constexpr all_reduce_algorithm choose_by_messages(int ranks, std::size_t bytes) {
  constexpr std::size_t doubling_bytes_max = std::size_t{32} << 10;
  constexpr std::size_t halving_bytes_max = std::size_t{512} << 10;
  if (bytes <= doubling_bytes_max) {
    return all_reduce_algorithm::recursive_doubling;
  }
  const bool is_power_of_two = std::has_single_bit(static_cast<unsigned>(ranks));
  return is_power_of_two && bytes <= halving_bytes_max ? all_reduce_algorithm::halving_doubling
                                                       : all_reduce_algorithm::ring;
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
