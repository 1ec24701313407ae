/// @file
/// welcome::decode: takes exactly what welcome::encode makes, and holds no more than a multiple of it.
#pragma once

#include <algorithm>

#include <boost/asio/ip/address.hpp>

#include <gradweave/transport/introduction.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

inline void welcome(bytes_view input) {
  if (const auto answer = detail::welcome::decode(input)) {
    check(answer->table.capacity() * sizeof(answer->table[0]) <= 16 * input.size(),
          "a table is no longer than what came");
    for (const auto& place : answer->table) {
      if (!place.first.empty()) {
        (void)boost::asio::ip::make_address(place.first);  // throws for what is no address
      }
    }
    check(std::ranges::equal(answer->encode(), input), "a welcome that is taken was made by encode");
  }
}

}  // namespace gradweave::fuzz
