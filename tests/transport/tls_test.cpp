#include <gradweave/transport/tls.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <doctest/doctest.h>

#include <gradweave/backend/tls.hpp>
#include <gradweave/testing/transport_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/streams.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

deadline soon() { return std::chrono::steady_clock::now() + 20s; }

/// Both sides' streams, or why there are none.
struct handshake_outcome {
  std::optional<tls_stream> caller, host;
  std::string caller_fault, host_fault;
};

handshake_outcome shake_hands(boost::asio::io_context& context, const std::string& of_caller,
                              const std::string& of_host) {
  auto [near, far] = tests::socket_pair(context);
  handshake_outcome outcome;
  std::thread host([&, socket = std::move(far)]() mutable {
    try {
      outcome.host.emplace(std::move(socket), stream_side::host, of_host, soon());
    } catch (const std::runtime_error& fault) {
      outcome.host_fault = fault.what();
    }
  });
  try {
    outcome.caller.emplace(std::move(near), stream_side::caller, of_caller, soon());
  } catch (const std::runtime_error& fault) {
    outcome.caller_fault = fault.what();
  }
  host.join();
  return outcome;
}

}  // namespace

TEST_CASE("tls_stream: ten MiB arrive as they were, and the end is seen") {
  const testing::watchdog guard("tls stream");
  boost::asio::io_context context;
  auto [caller, host, caller_fault, host_fault] = shake_hands(context, "secret", "secret");
  REQUIRE((caller && host));
  std::vector<std::byte> sent(std::size_t{10} << 20);
  std::mt19937 random(1);
  std::generate(sent.begin(), sent.end(), [&] { return static_cast<std::byte>(random()); });
  std::array<std::byte, 8> room{};
  CHECK(host->read(room).bytes == 0);
  CHECK_FALSE(host->at_end());
  std::thread sender([&, from = std::move(*caller)]() mutable {
    for (std::size_t done = 0; done < sent.size();) {
      done += from.write(std::span(sent).subspan(done)).bytes;
    }
    from.shut_down();
  });
  const auto arrived = tests::read_all(*host);
  sender.join();
  CHECK(arrived == sent);
  CHECK(host->at_end());
}

TEST_CASE("tls_stream: what is on the wire is not what was written") {
  boost::asio::io_context context;
  auto [caller, host, caller_fault, host_fault] = shake_hands(context, "secret", "secret");
  REQUIRE((caller && host));
  const std::string text = "a gradient that nobody else should see";
  const testing::watchdog guard("tls wire");
  CHECK(caller->write(std::as_bytes(std::span(text))).bytes == text.size());
  std::string wire(1000, ' ');
  ssize_t there = -1;
  while (there <= static_cast<ssize_t>(text.size())) {  // it arrives with a head and a tag
    there = ::recv(host->native_handle(), wire.data(), wire.size(), MSG_PEEK);
  }
  CHECK(wire.find(text.substr(0, 4)) == std::string::npos);
  std::array<std::byte, 100> room{};
  CHECK(host->read(room).bytes == text.size());
}

TEST_CASE("tls_stream: another secret fails on both sides") {
  const testing::watchdog guard("tls secrets");
  boost::asio::io_context context;
  const auto outcome = shake_hands(context, "one", "two");
  CHECK(outcome.caller_fault.find("gradweave: TLS: the handshake failed") == 0);
  CHECK(outcome.host_fault.find("gradweave: TLS: the handshake failed") == 0);
}

TEST_CASE("tls_stream: a peer that does not answer is given up, and noise is refused") {
  const testing::watchdog guard("tls noise");
  boost::asio::io_context context;
  {
    auto [near, far] = tests::socket_pair(context);
    CHECK_THROWS_WITH(tls_stream(std::move(near), stream_side::caller, "s", std::chrono::steady_clock::now() + 50ms),
                      "gradweave: TLS: the handshake was not answered in time");
  }
  auto [near, far] = tests::socket_pair(context);
  boost::asio::write(far, boost::asio::buffer(std::string(100, 'x')));
  CHECK_THROWS_AS(tls_stream(std::move(near), stream_side::host, "s", soon()), std::runtime_error);
}

TEST_CASE("tls: the transport conforms") {
  const testing::watchdog guard("transport conformance of tls", 120s);
  const auto report =
      testing::check_transport([](int size) { return tests::connect_tcp<tls_stream>(size, "a secret"); });
  CHECK_MESSAGE(report.passed(), to_string(report));
}
