/// @file
/// frame_decoder: what it says does not depend on how the bytes were cut, and what it refuses stays refused.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include <gradweave/transport/control_frames.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

static_assert(sizeof(frame_decoder) < 8192, "a decoder holds a few KiB");

/// What a control connection said.
struct control_stream {
  std::vector<control_message> messages;
  std::vector<std::vector<std::byte>> failures;
  bool refused = false;
  friend bool operator==(const control_stream&, const control_stream&) = default;
};

/// The frames of a stream that is there as a whole, by the format's description alone.
inline control_stream read_whole(bytes_view stream) {
  control_stream said;
  while (stream.size() >= frame_header_bytes && !said.refused) {
    const auto same_header = [&](frame_type type, std::size_t length) {
      return std::ranges::equal(frame_header(type, length), stream.first(frame_header_bytes));
    };
    const auto low = static_cast<std::size_t>(stream[4]) | static_cast<std::size_t>(stream[5]) << 8;
    const bool is_message = same_header(frame_type::message, sizeof(control_message));
    const bool is_failure = same_header(frame_type::failure, low) && low <= failure_message_bytes_max;
    const std::size_t whole = frame_header_bytes + (is_message ? sizeof(control_message) : low);
    said.refused = !is_message && !is_failure;
    if (said.refused || stream.size() < whole) {
      break;
    }
    const auto body = stream.subspan(frame_header_bytes, whole - frame_header_bytes);
    if (is_message) {
      std::ranges::copy(body, said.messages.emplace_back().begin());
    } else if (said.failures.size() < frame_decoder::failures_max && decode_failure(body)) {
      said.failures.emplace_back(body.begin(), body.end());
    } else {
      said.refused = true;  // no failure, or one too many
    }
    stream = stream.subspan(whole);
  }
  return said;
}

/// What frame_decoder makes of it. `next_cut(most)` is how many bytes come at once, 1 to `most`; `is_eager` says whether
/// messages and failures are taken as soon as they are there, or only once there is no room, and at the end.
template <class Cut>
control_stream read_in_cuts(bytes_view stream, bool is_eager, Cut&& next_cut) {
  frame_decoder decoder;
  control_stream said;
  const auto take_all = [&] {
    for (control_message message; decoder.take(message);) {
      said.messages.push_back(message);
    }
    while (const auto cause = decoder.take_failure()) {
      said.failures.push_back(encode_failure(*cause));
    }
    check(!decoder.has_message() && !decoder.take_failure(), "what was taken is gone");
  };
  bool accepted = true;
  while (!stream.empty() && accepted) {
    if (is_eager || decoder.room().empty()) {
      take_all();
    }
    const std::size_t room = std::min(stream.size(), decoder.room().size());
    check(room > 0, "there is room once messages are taken");
    const std::size_t count = std::min(room, next_cut(room));
    std::copy_n(stream.begin(), count, decoder.room().begin());
    accepted = decoder.commit(count);
    stream = stream.subspan(count);
  }
  take_all();
  said.refused = !decoder.commit(0);
  check(accepted || said.refused, "what is refused stays refused");
  if (said.refused) {
    const auto valid = frame_header(frame_type::message, sizeof(control_message));
    const std::size_t count = std::min(decoder.room().size(), valid.size());
    std::copy_n(valid.begin(), count, decoder.room().begin());
    check(!decoder.commit(count) && !decoder.has_message(), "nothing more is taken from who was refused");
  }
  return said;
}

inline void frames(bytes_view input) {
  const control_stream expected = read_whole(input);
  auto random = random_of(input);
  for (const bool is_eager : {false, true}) {
    check(read_in_cuts(input, is_eager, [](std::size_t most) { return most; }) == expected, "whole: as described");
    check(read_in_cuts(input, is_eager, [](std::size_t) { return std::size_t{1}; }) == expected,
          "byte by byte: as described");
    check(read_in_cuts(input, is_eager, [&](std::size_t most) { return 1 + random() % most; }) == expected,
          "in random cuts: as described");
  }
}

}  // namespace gradweave::fuzz
