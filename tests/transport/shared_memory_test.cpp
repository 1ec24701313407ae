#include <gradweave/transport/shared_memory.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/transport_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/gathering.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

std::string list(std::span<const std::string> failures) {
  std::string text;
  for (const std::string& each : failures) {
    text += each + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("shared_memory_transport: passes the conformance kit of transports, also where a rank does not share") {
  const testing::watchdog guard("shared_memory_transport: kit");
  for (const bool one_apart : {false, true}) {
    const auto report = testing::check_transport(
        [&](int size) { return connect_shared(size, one_apart ? std::vector<int>{size - 1} : std::vector<int>{}); });
    CHECK_MESSAGE(report.passed(), list(report.failures()));
  }
}

TEST_CASE("shared_memory_transport: passes the conformance kit of backends") {
  const testing::watchdog guard("shared_memory_transport: backend kit");
  const auto report =
      testing::check_backend([](int size, auto&& body) { run_tcp(size, body, {}, /*share_memory=*/true); },
                             {.sizes = world_sizes({1, 2, 3, 4})});
  CHECK_MESSAGE(report.passed(), list(report.failures()));
}

TEST_CASE("shared_memory_transport: what is lent is one memory for both, in pieces, and only of the own segments") {
  auto ends = connect_shared(2);
  const auto memory = ends[0].allocate(1000);
  std::vector<std::byte> other(10);
  const extent foreign{other.data(), other.size(), 0};
  const extent beyond{memory.data() + 990, 11, 0};
  CHECK_FALSE(ends[0].can_lend({&foreign, 1}));
  CHECK_FALSE(ends[0].can_lend({&beyond, 1}));
  const extent pieces[] = {{memory.data() + 100, 10, 0}, {memory.data() + 500, 20, 10}};
  REQUIRE(ends[0].can_lend(pieces));
  ends[0].lend(1, pieces);
  const auto borrowed = ends[1].borrowed(0);
  REQUIRE(borrowed.size() == 2);
  CHECK(borrowed[1].bytes == 20);
  CHECK(borrowed[1].memory != pieces[1].memory);
  std::fill_n(borrowed[1].memory, 20, std::byte{5});
  CHECK_FALSE(ends[0].given_back(1));
  ends[1].give_back(0);
  CHECK(ends[0].given_back(1));
  CHECK(std::count(memory.data(), memory.data() + 1000, std::byte{5}) == 20);
  const std::vector<extent> many(shared_pair::pieces_max + 1, pieces[0]);
  CHECK_FALSE(ends[0].can_lend(many));
}

TEST_CASE("shared_memory_transport: a new segment is known when it is lent, and an old one is forgotten") {
  auto ends = connect_shared(2);
  for (std::byte round{1}; round < std::byte{50}; round = static_cast<std::byte>(std::to_integer<int>(round) + 1)) {
    const auto memory = ends[0].allocate(5000);
    const extent whole{memory.data(), 5000, 0};
    memory.data()[4999] = round;
    ends[0].lend(1, {&whole, 1});
    CHECK(ends[1].borrowed(0)[0].memory[4999] == round);
    ends[1].give_back(0);
  }
}

TEST_CASE("shared_memory_transport: memory outlives the rank that lent it") {
  auto ends = connect_shared(2);
  extent borrowed;
  {
    const auto memory = ends[0].allocate(100);
    const extent whole{memory.data(), 100, 0};
    ends[0].lend(1, {&whole, 1});
    borrowed = ends[1].borrowed(0)[0];
  }
  ends.erase(ends.begin());
  std::fill_n(borrowed.memory, borrowed.bytes, std::byte{1});
}

TEST_CASE("shared_memory_transport: groups are those that share, and the report says who") {
  auto ends = connect_shared(3, {1});
  CHECK(ends[0].memory_group(0) == ends[0].memory_group(2));
  CHECK(ends[0].memory_group(0) != ends[0].memory_group(1));
  CHECK(ends[1].memory_group(1) == ends[0].memory_group(1));
  const auto told = [](const auto& end) {
    description here;
    end.describe_here(here);
    for (const auto& [key, value] : here.entries()) {
      if (key == "shares memory with") {
        return value;
      }
    }
    return std::string();
  };
  CHECK(told(ends[0]) == "rank 2");
  CHECK(told(ends[1]) == "nobody: it is turned off");
}

TEST_CASE("shared_memory_transport: the end of a neighbour that came in an earlier sleep is not forgotten") {
  auto ends = connect_shared(2);
  const auto later = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(300); };
  const std::uint64_t before = ends[0].events();
  REQUIRE(ends[1].try_send_control(0, control_message{}));
  ends.pop_back();
  for (int i = 0; i < 3; ++i) {
    ends[0].wait(ends[0].events(), later());  // hears of the end, while a message is unread
  }
  CHECK_FALSE(ends[0].peer_closed(1));
  control_message message;
  REQUIRE(ends[0].try_receive_control(1, message));
  ends[0].wait(before, later());  // something has happened since: returns without a sleep
  CHECK(ends[0].peer_closed(1));
}
