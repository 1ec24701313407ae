/// @file
/// open_envelope: takes exactly what in_envelope makes, and no body that is longer than the reader said.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/transport/envelope.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void envelope(bytes_view input) {
  constexpr std::size_t head_bytes = detail::envelope_bytes;
  constexpr std::size_t bytes_max = detail::introduction_bytes_max;
  const auto enclosed = detail::in_envelope(detail::message_kind::introduction, input);
  const auto head = std::span(enclosed).first<head_bytes>();
  const auto opened = detail::open_envelope(head, input.size());
  check(opened && opened->body_bytes == input.size(), "an envelope holds what was put in");
  check(opened->kind == detail::message_kind::introduction, "an envelope says what it holds");
  check(input.empty() || !detail::open_envelope(head, input.size() - 1), "a body longer than allowed is refused");

  if (input.size() < head_bytes) {
    return;
  }
  if (const auto came = detail::open_envelope(input.first<head_bytes>(), bytes_max)) {
    check(came->body_bytes <= bytes_max, "a body keeps within its bound");
    const auto same = detail::in_envelope(came->kind, std::vector<std::byte>(came->body_bytes));
    check(std::equal(same.begin(), same.begin() + head_bytes, input.begin()),
          "an envelope that is taken was made by in_envelope");
  }
}

}  // namespace gradweave::fuzz
