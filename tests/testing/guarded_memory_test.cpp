#include <gradweave/testing/guarded_memory.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <doctest/doctest.h>

namespace gt = gradweave::testing;

namespace {

volatile unsigned char seen;

unsigned char at(const std::byte* memory, std::ptrdiff_t offset) {
  return static_cast<unsigned char>(
      static_cast<const volatile unsigned char*>(static_cast<const void*>(memory))[offset]);
}

}  // namespace

TEST_CASE("canaried_memory: shows a write on either side") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{100}}) {
    const gt::canaried_memory memory(bytes, std::byte{7});
    CHECK(reinterpret_cast<std::uintptr_t>(memory.bytes().data()) % 64 == 0);
    CHECK(memory.bytes().size() == bytes);
    CHECK(memory.intact());
    for (std::byte& each : memory.bytes()) {
      CHECK(each == std::byte{7});
      each = std::byte{8};
    }
    CHECK(memory.intact());
    const std::byte kept = *(memory.bytes().data() + bytes);
    *(memory.bytes().data() + bytes) = std::byte{1};
    CHECK(!memory.intact());
    *(memory.bytes().data() + bytes) = kept;
    CHECK(memory.intact());
    *(memory.bytes().data() - 1) = std::byte{1};
    CHECK(!memory.intact());
  }
}

TEST_CASE("guarded_memory: nobody reads past its end") {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, std::size_t{4096}, std::size_t{10'000}}) {
    const gt::guarded_memory memory(bytes);
    CHECK(memory.bytes().size() == bytes);
    const auto end = static_cast<std::ptrdiff_t>(bytes);
    if (bytes != 0) {
      CHECK(gt::survives([&] { seen = at(memory.bytes().data(), end - 1); }));
    }
    CHECK(!gt::survives([&] { seen = at(memory.bytes().data(), end); }));
  }
}

TEST_CASE("survives: an exception is none") {
  CHECK(gt::survives([] {}));
  CHECK(!gt::survives([] { throw std::runtime_error("no"); }));
}
