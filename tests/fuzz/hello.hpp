/// @file
/// hello::decode: takes exactly what hello::encode makes.
#pragma once

#include <algorithm>

#include <gradweave/transport/envelope.hpp>
#include <gradweave/transport/introduction.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void hello(bytes_view input) {
  if (const auto came = detail::hello::decode(input)) {
    check(input.size() <= detail::introduction_bytes_max, "a hello fits into an introduction");
    check(std::ranges::equal(came->encode(), input), "a hello that is taken was made by encode");
  }
}

}  // namespace gradweave::fuzz
