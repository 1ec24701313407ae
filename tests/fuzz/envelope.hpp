/// @file
/// open_envelope: takes exactly what in_envelope makes, and no body that is longer than the reader said.
#pragma once

#include <algorithm>
#include <vector>

#include <gradweave/transport/reception.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void envelope(bytes_view input) {
  const auto enclosed = detail::in_envelope(input);
  const auto opened = detail::open_envelope(std::span(enclosed).first<detail::envelope_bytes>(), input.size());
  check(opened == input.size(), "an envelope holds what was put in");
  check(input.empty() || !detail::open_envelope(std::span(enclosed).first<detail::envelope_bytes>(), input.size() - 1),
        "a body longer than allowed is refused");
  if (input.size() < detail::envelope_bytes) {
    return;
  }
  const auto head = input.first<detail::envelope_bytes>();
  const auto length = detail::open_envelope(head, detail::introduction_bytes_max);
  if (length) {
    check(*length <= detail::introduction_bytes_max, "a body keeps within its bound");
    const auto same = detail::in_envelope(std::vector<std::byte>(*length));
    check(std::equal(head.begin(), head.end(), same.begin()), "an envelope that is taken was made by in_envelope");
  }
}

}  // namespace gradweave::fuzz
