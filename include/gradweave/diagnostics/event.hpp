/// @file
/// What is recorded of a rank: one span of time, on its steady clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>

namespace gradweave {

enum class event_kind : std::uint8_t {
  wait,      ///< a bucket waits, complete, for its turn
  encode,    ///< work before a bucket's first collective
  transfer,  ///< a collective
  decode,    ///< work after a collective of a bucket
  exposed,   ///< the caller waits
};

constexpr std::string_view to_string(event_kind kind) {
  constexpr std::string_view names[] = {"wait", "encode", "transfer", "decode", "exposed"};
  return names[static_cast<std::size_t>(kind)];
}

struct event {
  using clock = std::chrono::steady_clock;

  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;       ///< 0 while it lasts
  std::uint64_t step = 0;        ///< the number of steps that have ended
  std::uint64_t collective = 0;  ///< which one, counted from 1 on all ranks alike; 0 for none
  std::uint64_t elements = 0;
  std::int32_t bucket = -1;
  event_kind kind = event_kind::transfer;
  gradweave::collective operation = gradweave::collective::barrier;
  element_kind element = element_kind::uint8;

  friend bool operator==(const event&, const event&) = default;
};

constexpr std::int64_t event_time(event::clock::time_point moment) { return moment.time_since_epoch().count(); }

/// "all_reduce of 1000 float32 elements (collective 17, step 5, bucket 2)".
inline std::string to_string(const event& of) {
  std::string text(to_string(of.operation));
  if (of.elements != 0) {
    text += " of " + std::to_string(of.elements) + " " + std::string(element_name(of.element)) + " elements";
  }
  text += " (collective " + std::to_string(of.collective) + ", step " + std::to_string(of.step);
  return text + (of.bucket < 0 ? ")" : ", bucket " + std::to_string(of.bucket) + ")");
}

}  // namespace gradweave
