#include <gradweave/transport/asio.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/transport_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("asio_transport: conforms") {
  const testing::watchdog guard("transport conformance of tcp");
  const auto report = testing::check_transport([](int size) { return tests::connect_tcp(size); },
                                               {.sizes = tests::world_sizes({2, 3, 4})});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("asio_transport: causes found at the same time become one story") {
  const testing::watchdog guard("one story");
  for (int round = 0; round < 20; ++round) {
    auto ends = tests::connect_tcp(4);
    std::vector<std::string> stories(4);
    tests::on_threads(4, [&](int rank) {
      failure cause{rank == 1 ? errc::timed_out : errc::aborted, rank, -1, -1, {}, "cause " + std::to_string(rank)};
      cause.collectives_completed = rank == 3 ? 4 : 9;
      stories[static_cast<std::size_t>(rank)] = to_string(ends[static_cast<std::size_t>(rank)].abort(cause));
    });
    for (const std::string& story : stories) {
      CHECK(story == stories[0]);
    }
  }
}

TEST_CASE("asio_transport: a peer whose process would be gone is seen without its payload being asked for") {
  const testing::watchdog guard("gone");
  auto ends = tests::connect_tcp(2);
  {
    const asio_transport leaving = std::move(ends[1]);
  }
  while (!ends[0].peer_closed(1)) {
    ends[0].wait(ends[0].events(), std::chrono::steady_clock::now() + 20ms);
  }
  CHECK(ends[0].peer_closed(1));
}
