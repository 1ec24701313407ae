#include <gradweave/backend/mpi/payload.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/mpi.hpp"

using namespace gradweave;
using namespace gradweave::backend;

TEST_CASE("mpi payload: parts of a scattered buffer are packed one after another, and come back to where they belong") {
  tests::mpi_world::instance();
  std::vector<std::int32_t> one = {1, 2, 3};
  std::vector<std::int32_t> two = {4, 5, 6, 7};
  std::vector<extent> buffer;
  append_extent(buffer, reinterpret_cast<std::byte*>(one.data()), 12);
  append_extent(buffer, reinterpret_cast<std::byte*>(two.data()), 16);
  mpi::exchanged_parts parts(2);
  mpi::memory room;
  parts.begin(buffer, 4, false);
  parts.set(0, {1, 4});  // 2 to 5
  parts.set(1, {6, 1});  // 7
  const auto* packed = reinterpret_cast<std::int32_t*>(parts.base(room));
  parts.pack(0, {1, 4});
  parts.pack(1, {6, 1});
  CHECK(std::vector<std::int32_t>(packed, packed + 5) == std::vector<std::int32_t>{2, 3, 4, 5, 7});
  CHECK(parts.counts()[0] == 16);
  CHECK(parts.displacements()[1] == 16);
  one = {0, 0, 0};
  two = {0, 0, 0, 0};
  parts.unpack(0, {1, 4});
  parts.unpack(1, {6, 1});
  CHECK(one == std::vector<std::int32_t>{0, 2, 3});
  CHECK(two == std::vector<std::int32_t>{4, 5, 0, 7});
}
