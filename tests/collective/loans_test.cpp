#include <gradweave/collective/loans.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/transport/in_process.hpp>

using namespace gradweave;

namespace {

buffer_range range_of(const extent& whole) { return {{&whole, 1}, 0, whole.bytes}; }

}  // namespace

TEST_CASE("loans: memory of the transport's own is lent where it lies") {
  auto ends = in_process_transport::connect(2);
  const auto memory = ends[0].allocate(256);
  const extent whole{memory.data(), 256, 0};
  loans<in_process_transport> lent;
  lent.begin();
  lent.lend(ends[0], 1, range_of(whole), true);
  REQUIRE(ends[1].borrowed(0).size() == 1);
  CHECK(ends[1].borrowed(0)[0].memory == memory.data());
  CHECK_FALSE(lent.have_ended(ends[0], 1));
  ends[1].give_back(0);
  CHECK(lent.have_ended(ends[0], 1));
}

TEST_CASE("loans: other memory is copied, and what a peer wrote comes back in its place") {
  auto ends = in_process_transport::connect(3);
  std::vector<std::byte> memory(200, std::byte{1});
  const extent whole{memory.data(), memory.size(), 0};
  loans<in_process_transport> lent;
  for (int repeat = 0; repeat < 3; ++repeat) {
    lent.begin();
    lent.lend(ends[0], 1, {{&whole, 1}, 0, 100}, true);
    lent.lend(ends[0], 2, {{&whole, 1}, 100, 100}, false);
    for (const int borrower : {1, 2}) {
      const extent copy = ends[static_cast<std::size_t>(borrower)].borrowed(0)[0];
      CHECK(copy.memory != memory.data());
      CHECK(copy.bytes == 100);
      std::fill_n(copy.memory, copy.bytes, static_cast<std::byte>(borrower + 8));
      ends[static_cast<std::size_t>(borrower)].give_back(0);
      CHECK(lent.have_ended(ends[0], borrower));
    }
    CHECK(std::count(memory.begin(), memory.end(), std::byte{9}) == 100);  // lent for writing
    CHECK(std::count(memory.begin(), memory.end(), std::byte{1}) == 100);  // lent for reading
  }
}

TEST_CASE("loans: what several peers may only read is copied once") {
  auto ends = in_process_transport::connect(3);
  std::vector<std::byte> memory(200);
  const extent whole{memory.data(), memory.size(), 0};
  loans<in_process_transport> lent;
  lent.begin();
  lent.lend(ends[0], 1, range_of(whole), false);
  lent.lend(ends[0], 2, range_of(whole), false);
  CHECK(ends[1].borrowed(0)[0].memory == ends[2].borrowed(0)[0].memory);
}
