/// @file
/// parse_meeting_place: what is taken from a file says the same once it is written again.
#pragma once

#include <string>

#include <gradweave/transport/meeting_file.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void meeting_place(bytes_view input) {
  const std::string text(reinterpret_cast<const char*>(input.data()), input.size());
  if (const auto place = detail::parse_meeting_place(text)) {
    const auto again = detail::parse_meeting_place(detail::to_text(*place));
    check(again && *again == *place, "a place survives the way through a file");
    for (const auto& endpoint : place->endpoints) {
      check(endpoint.port() != 0, "a place can be called");
    }
  }
}

}  // namespace gradweave::fuzz
