#include <gradweave/transport/shared_block.hpp>

#include <unistd.h>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
constexpr segment_proof proof{std::byte{1}, std::byte{2}};
}  // namespace

TEST_CASE("shared_block: is known by its size and its proof") {
  const shared_block own = shared_block::create(3, proof);
  const shared_block other = shared_block::adopt(descriptor(::dup(own.handle())));
  CHECK(other.is_of(3, proof));
  CHECK_FALSE(other.is_of(4, proof));
  CHECK_FALSE(other.is_of(3, {}));
}

TEST_CASE("shared_block: a mailbox holds so many messages, in order, seen through either mapping") {
  const shared_block own = shared_block::create(2, proof);
  const shared_block other = shared_block::adopt(descriptor(::dup(own.handle())));
  control_message message{};
  CHECK_FALSE(other.towards(1).take(message));
  for (int round = 0; round < 3; ++round) {
    std::size_t posted = 0;
    for (; own.towards(1).post(control_message{static_cast<std::byte>(posted)}); ++posted) {
    }
    CHECK(posted == shared_pair::mailbox_capacity);
    for (std::size_t i = 0; i < posted; ++i) {
      REQUIRE(other.towards(1).take(message));
      CHECK(message[0] == static_cast<std::byte>(i));
    }
    CHECK(own.towards(1).is_empty());
  }
  CHECK(other.towards(0).is_empty());
}
