#include <gradweave/transport/reception.hpp>

#include <chrono>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/call.hpp>

using namespace gradweave;
using namespace gradweave::detail;
using boost::asio::ip::tcp;
using namespace std::chrono_literals;

namespace {

/// Sends `bytes` and waits until the other side closes, or gives up after a while.
bool is_closed_on(const tcp::endpoint& desk, std::span<const std::byte> bytes) {
  boost::asio::io_context context;
  tcp::socket socket(context);
  socket.connect(desk);
  boost::system::error_code fault;
  boost::asio::write(socket, boost::asio::buffer(bytes.data(), bytes.size()), fault);
  std::byte answer;
  const std::size_t arrived = socket.read_some(boost::asio::buffer(&answer, 1), fault);
  return arrived == 0 && fault;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes;
  for (const char c : text) {
    bytes.push_back(static_cast<std::byte>(c));
  }
  return bytes;
}

}  // namespace

TEST_CASE("reception: strangers are closed, and those who introduce themselves are heard meanwhile") {
  const testing::watchdog guard("strangers");
  boost::asio::io_context context;
  tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
  const tcp::endpoint place = acceptor.local_endpoint();
  std::vector<std::string> heard;
  std::thread visitors([&] {
    boost::asio::io_context own;
    tcp::socket silent(own);  // says nothing, all the while
    silent.connect(place);
    tcp::socket slow(own);  // begins, and never goes on
    slow.connect(place);
    boost::asio::write(slow, boost::asio::buffer("grad", 4));

    CHECK(is_closed_on(place, bytes_of("GET / HTTP/1.1\r\nHost: there\r\n\r\n")));
    std::mt19937 random(3);
    std::vector<std::byte> noise(10'000'000);
    for (std::byte& each : noise) {
      each = static_cast<std::byte>(random());
    }
    CHECK(is_closed_on(place, noise));
    auto greedy = in_envelope(message_kind::caller_nonce, bytes_of("x"));
    for (std::size_t i = 8; i < envelope_bytes; ++i) {
      greedy[i] = std::byte{0xff};
    }
    CHECK(is_closed_on(place, greedy));
    CHECK(is_closed_on(place, in_envelope(message_kind::introduction, bytes_of("who has proved nothing"))));

    tcp::socket friendly(own);
    friendly.connect(place);
    CHECK_FALSE(prove_secret(own, friendly, "", std::chrono::steady_clock::now() + 20s));
    boost::asio::write(friendly, boost::asio::buffer(in_envelope(message_kind::introduction, bytes_of("rank 7"))));
    std::byte answer;
    boost::system::error_code fault;
    friendly.read_some(boost::asio::buffer(&answer, 1), fault);
  });
  {
    reception desk(context, std::move(acceptor), "", [&](tcp::socket, std::span<const std::byte> body) {
      std::string text;
      for (const std::byte each : body) {
        text.push_back(static_cast<char>(each));
      }
      heard.push_back(text);
    });
    while (heard.empty()) {
      context.run_one();
    }
  }
  visitors.join();
  CHECK(heard == std::vector<std::string>{"rank 7"});
}
