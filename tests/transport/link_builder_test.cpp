#include <gradweave/transport/link_builder.hpp>

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace gradweave::detail;
using namespace std::chrono_literals;

namespace {

/// Of one rank: there is nobody to wait for.
struct no_barrier {
  static constexpr const char* came = "was there";
  wait_limit limit(deadline until) const { return {until}; }
  void arrive(deadline) {}
  [[noreturn]] void fail(errc, int culprit, const std::string& what) {
    throw std::runtime_error(std::to_string(culprit) + ": " + what);
  }
};

}  // namespace

TEST_CASE("link_builder: connects in the direction of the plan; whoever has another ticket is not taken for a peer") {
  const testing::watchdog guard("link_builder");
  std::vector<boost::asio::io_context> contexts(2);
  for (const std::uint64_t ticket_of_caller : {std::uint64_t{7}, std::uint64_t{8}}) {
    boost::asio::ip::tcp::acceptor listens = listen_at(contexts[0], 0, boost::asio::ip::address_v4::loopback());
    const tcp_endpoint host = listens.local_endpoint();
    const auto patience = ticket_of_caller == 7 ? 60s : 1s;
    std::vector<std::string> told(2);
    tests::on_threads(2, [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      link_plan plan{rank,
                     {std::nullopt, std::nullopt},
                     rank == 0 ? std::uint64_t{7} : ticket_of_caller,
                     "a secret",
                     std::nullopt};
      plan.peers[1 - r] = link_peer{10 + 1 - rank, rank == 0 ? stream_side::host : stream_side::caller, host, "there"};
      no_barrier barrier;
      try {
        auto own = rank == 0 ? std::move(listens) : listen_at(contexts[1], 0);
        const auto links = link_builder<tcp_stream, no_barrier>(contexts[r], plan, barrier)
                               .connect(std::move(own), std::chrono::steady_clock::now() + patience);
        CHECK_FALSE(links[r].has_value());
        CHECK(links[1 - r].value().ends.side == plan.peers[1 - r]->side);
        CHECK(links[1 - r].value().ends.peer == boost::asio::ip::address_v4::loopback());
      } catch (const std::runtime_error& fault) {
        told[r] = fault.what();
      }
    });
    CHECK(told[1].empty());
    CHECK(told[0] == (ticket_of_caller == 7 ? "" : "11: rank 11 (there) was there, but never called " + to_text(host)));
  }
}
