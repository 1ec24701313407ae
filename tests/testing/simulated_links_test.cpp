#include <gradweave/testing/simulated_links.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using testing::stream_kind;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  }
  return bytes;
}

/// Two ranks' links, without ranks.
struct pair_of_ranks {
  testing::virtual_time time;
  std::vector<int> rung;
  testing::simulated_links links;

  explicit pair_of_ranks(const testing::simulated_network_options& options)
      : links(time, options, [this](int rank) {
          rung.push_back(rank);
          time.wake(rank);
        }) {}

  void pass(std::chrono::milliseconds some) {
    for (const deadline until = time.now() + some; time.now() < until;) {
      time.wait(-2, until);
    }
  }
  std::vector<std::byte> take(stream_kind kind, std::size_t most) {
    std::vector<std::byte> room(most);
    room.resize(links.read(kind, 0, 1, room).bytes);
    return room;
  }
};

}  // namespace

TEST_CASE("simulated_links: bytes arrive whole and in order, in pieces, however they are delayed") {
  pair_of_ranks two({.seed = 3, .delay_max = 500us, .hold_up_max = 5ms, .room_bytes = 100, .piece_bytes_max = 30});
  const auto sent = numbered(5000);
  std::vector<std::byte> received;
  std::size_t out = 0;
  while (received.size() < sent.size()) {
    out += two.links.write(stream_kind::payload, 0, 1, std::span(sent).subspan(out)).bytes;
    CHECK(out - received.size() <= 100);
    two.pass(1ms);
    const auto more = two.take(stream_kind::payload, 1000);
    CHECK(more.size() <= 30);
    received.insert(received.end(), more.begin(), more.end());
  }
  CHECK(received == sent);
}

TEST_CASE("simulated_links: the receiver is told of an arrival, the sender of room") {
  pair_of_ranks two({});
  const auto sent = numbered(10);
  two.links.write(stream_kind::control, 0, 1, sent);
  CHECK(two.rung.empty());
  two.pass(1ms);
  CHECK(two.rung == std::vector<int>{1});
  CHECK(two.take(stream_kind::control, 10) == sent);
  CHECK(two.rung == std::vector<int>{1, 0});
}

TEST_CASE("simulated_links: an end is seen behind what was sent; what is lost is the end of it") {
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    pair_of_ranks two({.seed = seed});
    const auto sent = numbered(10);
    two.links.write(stream_kind::payload, 0, 1, sent);
    if (seed % 2 == 0) {
      two.links.lose_some(0, 1);
    }
    two.links.end(0, 1);
    CHECK_FALSE(two.links.at_end(stream_kind::payload, 0, 1));
    two.pass(1ms);
    const auto received = two.take(stream_kind::payload, 100);
    CHECK(two.links.at_end(stream_kind::payload, 0, 1));
    CHECK(std::equal(received.begin(), received.end(), sent.begin()));
    CHECK((seed % 2 == 0 || received.size() == sent.size()));
  }
}

TEST_CASE("simulated_links: a reset loses what is on its way, not what has arrived") {
  pair_of_ranks two({});
  two.links.write(stream_kind::payload, 0, 1, numbered(4));
  two.pass(1ms);
  two.links.write(stream_kind::payload, 0, 1, numbered(100));
  two.links.lose_all(0, 1);
  two.links.end(0, 1);
  two.pass(1ms);
  CHECK(two.take(stream_kind::payload, 1000) == numbered(4));
  CHECK(two.links.at_end(stream_kind::payload, 0, 1));
}
