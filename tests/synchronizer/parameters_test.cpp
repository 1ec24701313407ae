#include <gradweave/synchronizer/parameters.hpp>

#include <array>
#include <set>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("digest_of: tells every single flipped bit, every length and the order apart") {
  std::set<std::uint64_t> seen;
  std::size_t expected = 0;
  for (std::size_t length = 0; length < 40; ++length) {
    std::vector<std::byte> bytes(length);
    seen.insert(detail::digest_of(bytes));
    ++expected;
    for (std::size_t bit = 0; bit < 8 * length; ++bit) {
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      seen.insert(detail::digest_of(bytes));
      ++expected;
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
  CHECK(seen.size() == expected);
  const std::array<std::uint64_t, 2> words = {1, 2};
  const std::array<std::uint64_t, 2> swapped = {2, 1};
  CHECK(detail::digest_of(std::as_bytes(std::span(words))) != detail::digest_of(std::as_bytes(std::span(swapped))));
}
