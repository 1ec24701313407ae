/// @file
/// decode_failure: takes exactly what encode_failure makes, which bounds what it holds.
#pragma once

#include <algorithm>

#include <gradweave/transport/failure_message.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void failure_message(bytes_view input) {
  const auto cause = decode_failure(input);
  if (!cause) {
    return;
  }
  check(input.size() <= failure_message_bytes_max, "a failure message keeps within its bound");
  check(std::ranges::equal(encode_failure(*cause), input), "a failure that is taken was made by encode_failure");
  check(!make_error_code(cause->code).message().starts_with("unknown"), "a failure's code is a known one");
  check(!to_string(*cause).empty() || cause->detail.empty(), "a failure can be told");
  check(!comes_before(*cause, *cause), "no failure comes before itself");
}

}  // namespace gradweave::fuzz
