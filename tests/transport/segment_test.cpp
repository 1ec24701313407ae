#include <gradweave/transport/segment.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("segment: what one mapping writes the other reads, also once the descriptor is closed") {
  segment own = segment::create(10'000);
  CHECK(own.size() == 10'000);
  CHECK(std::all_of(own.data(), own.data() + own.size(), [](std::byte each) { return each == std::byte{0}; }));
  segment other = segment::adopt(descriptor(::dup(own.handle())));
  other.close_handle();
  own.close_handle();
  CHECK(other.data() != own.data());
  own.data()[9'999] = std::byte{7};
  CHECK(other.data()[9'999] == std::byte{7});
  const segment moved = std::move(own);
  CHECK(moved.data()[9'999] == std::byte{7});
}

TEST_CASE("segment: nobody can change its size") {
  const segment own = segment::create(4096);
  CHECK(::ftruncate(own.handle(), 10) != 0);
  CHECK(::ftruncate(own.handle(), 10'000) != 0);
}

TEST_CASE("segment: memory whose size is not sealed is not taken over") {
  descriptor loose(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(loose.number(), 4096) == 0);
  CHECK_THROWS_WITH_AS(segment::adopt(std::move(loose)), doctest::Contains("not sealed"), std::system_error);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[1]);
  CHECK_THROWS_AS(segment::adopt(descriptor(ends[0])), std::system_error);
}

TEST_CASE("segment: an empty one has an address") { CHECK(segment::create(0).data() != nullptr); }
