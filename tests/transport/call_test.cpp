#include <gradweave/transport/call.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/reception.hpp>

using namespace gradweave;
using namespace gradweave::detail;
using boost::asio::ip::make_address;
using namespace std::chrono_literals;

namespace {

deadline soon() { return std::chrono::steady_clock::now() + 20s; }

struct meeting {
  std::optional<std::string> told_caller;
  bool introduced = false;
  std::size_t refused = 0;
};

/// A caller with one secret comes to a host with another; "" is none.
meeting meet(const std::string& of_caller, const std::string& of_host) {
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor acceptor(context, {make_address("127.0.0.1"), 0});
  const auto place = acceptor.local_endpoint();
  meeting result;
  bool ended = false;
  std::thread caller([&] {
    boost::asio::io_context own;
    std::string fault;
    auto socket = connect_until(own, place, std::nullopt, soon(), fault);
    REQUIRE(socket);
    result.told_caller = prove_secret(own, *socket, of_caller, soon());
    if (!result.told_caller) {
      send_message(*socket, message_kind::introduction, {});
      result.told_caller = receive_message(own, *socket, {message_kind::answer}, 10, soon()).fault;
    }
    boost::asio::post(context, [&] { ended = true; });
  });
  reception desk(context, std::move(acceptor), of_host, [&](tcp_socket guest, std::span<const std::byte>) {
    result.introduced = true;
    send_message(guest, message_kind::answer, {});
  });
  run_until(context, soon(), [&] { return ended; });
  caller.join();
  result.refused = desk.refused();
  return result;
}

}  // namespace

TEST_CASE("run_until: tells a deadline from being done") {
  boost::asio::io_context context;
  CHECK(run_until(context, std::chrono::steady_clock::now(), [] { return true; }));
  CHECK_FALSE(run_until(context, std::chrono::steady_clock::now() + 20ms, [] { return false; }));
}

TEST_CASE("connect_until: a refusal names both addresses") {
  boost::asio::io_context context;
  std::string fault;
  CHECK_FALSE(connect_until(context, {make_address("127.0.0.1"), 1}, std::nullopt, soon(), fault));
  CHECK(fault == "127.0.0.1 to 127.0.0.1 port 1: Connection refused");
  CHECK_FALSE(connect_until(context, {make_address("127.0.0.1"), 1}, make_address("127.0.0.9"), soon(), fault));
  CHECK(fault == "127.0.0.9 to 127.0.0.1 port 1: Connection refused");
  CHECK_FALSE(connect_until(context, {make_address("127.0.0.1"), 1}, make_address("192.0.2.1"), soon(), fault));
  CHECK(fault.find("192.0.2.1 to 127.0.0.1 port 1: ") == 0);
}

TEST_CASE("prove_secret: who knows it gets in, and nobody else") {
  const testing::watchdog guard("prove_secret");
  for (const char* same : {"", "open sesame"}) {
    const meeting right = meet(same, same);
    CHECK(right.introduced);
    CHECK_FALSE(right.told_caller);
  }
  for (const auto& [of_caller, of_host] :
       {std::pair("open barley", "open sesame"), std::pair("", "open sesame"), std::pair("open sesame", "")}) {
    const meeting wrong = meet(of_caller, of_host);
    CHECK_FALSE(wrong.introduced);
    CHECK(wrong.refused == 1);
    REQUIRE(wrong.told_caller);
    CHECK(wrong.told_caller->find("do not know the same secret") != std::string::npos);
  }
}
