/// @file
/// mesh_call::decode: takes exactly what mesh_call::encode makes.
#pragma once

#include <algorithm>

#include <gradweave/transport/introduction.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void mesh_call(bytes_view input) {
  if (const auto came = detail::mesh_call::decode(input)) {
    check(came->which == detail::channel::payload || came->which == detail::channel::control, "a channel is known");
    check(std::ranges::equal(came->encode(), input), "a call that is taken was made by encode");
  }
}

}  // namespace gradweave::fuzz
