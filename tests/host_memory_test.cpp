#include <gradweave/host_memory.hpp>

#include <cstdint>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("host_memory: is zeroed, on a page boundary, and may be empty") {
  const host_memory arena(10'000);
  CHECK(reinterpret_cast<std::uintptr_t>(arena.data()) % host_memory::alignment == 0);
  CHECK(std::all_of(arena.data(), arena.data() + 10'000, [](std::byte b) { return b == std::byte{0}; }));
  CHECK(host_memory(0).data() != nullptr);
}
