#include <gradweave/backend/mpi/entry.hpp>

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using gradweave::backend::mpi::detail::entry_words;

namespace {

entry_words words(std::uint64_t each, std::uint64_t piece, std::uint64_t balance) {
  entry_words made;
  made.greatest.fill(each);
  made.least.fill(~each);
  made.largest_piece = piece;
  made.balance = balance;
  return made;
}

}  // namespace

TEST_CASE("mpi entry: ranks agree where each word is the same on all, and what is sent is what is expected") {
  entry_words sum = words(7, 3, std::uint64_t{0} - 5);
  sum.merge(words(7, 9, 2));
  CHECK_FALSE(sum.agree());  // of what the first expects, something is sent by nobody
  sum.merge(words(7, 1, 3));
  CHECK(sum.agree());
  CHECK(sum.largest_piece == 9);
  for (std::size_t word = 0; word < entry_words::compared; ++word) {
    for (const std::uint64_t other : {std::uint64_t{6}, std::uint64_t{8}}) {
      entry_words differs = words(7, 0, 0);
      differs.greatest[word] = other;
      differs.least[word] = ~other;
      differs.merge(words(7, 0, 0));
      CHECK_FALSE(differs.agree());
    }
  }
}
