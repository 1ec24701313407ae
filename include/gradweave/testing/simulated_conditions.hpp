/// @file
/// What a simulated network is like, and what goes wrong in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace gradweave::testing {

enum class fault_kind : std::uint8_t {
  none,
  stall,  ///< the rank does nothing for a while, or for ever; its connections stay
  death,  ///< the rank is gone: its connections close, and of what it has sent only a part may arrive
  reset,  ///< the connections between two ranks close, and what is on its way is lost
};

/// One fault of a run. It happens at a call that `rank` makes.
struct simulated_fault {
  fault_kind kind = fault_kind::none;
  int rank = 0;
  int other = 0;                                                       ///< of a reset
  std::uint64_t after_calls = 1;                                       ///< of the transport, by `rank`
  std::chrono::milliseconds lasts = std::chrono::milliseconds::max();  ///< a stall
};

struct simulated_network_options {
  int size = 2;
  std::uint64_t seed = 1;
  std::chrono::microseconds delay_max{100};    ///< of each piece of a stream; nothing overtakes anything
  std::chrono::microseconds hold_up_max{0};    ///< one piece in 16 takes up to that long in addition
  std::size_t room_bytes = std::size_t{4096};  ///< of payload from one rank to another, on its way or not yet received
  std::size_t piece_bytes_max = SIZE_MAX;      ///< a call sends or receives at most that much
  unsigned interruption_odds = 0;              ///< one call in so many lets other ranks run first; 0: none
  unsigned refusal_odds = 0;                   ///< one control message in so many finds no room at first; 0: none
  simulated_fault fault = {};
  std::uint64_t calls_max = 1'000'000;  ///< by all ranks; a run that makes more hangs
  std::chrono::hours time_max{1};       ///< a run that takes longer hangs
  bool keeps_trace = false;             ///< as text; its digest is always kept
};

}  // namespace gradweave::testing
