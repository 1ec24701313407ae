#include <gradweave/transport/rendezvous.hpp>

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("hello and welcome: survive the way, and every cut of them is refused") {
  const hello came{"0.1.0", "job", 4, 2, 999};
  const auto said = came.encode();
  REQUIRE(hello::decode(said));
  CHECK(hello::decode(said)->rank == 2);
  CHECK(hello::decode(said)->port == 999);
  welcome answer;
  answer.secret = 77;
  answer.table = {{"127.0.0.1", 1}, {"::1", 2}};
  const auto answered = answer.encode();
  REQUIRE(welcome::decode(answered));
  CHECK(welcome::decode(answered)->table == answer.table);
  for (std::size_t length = 0; length < said.size(); ++length) {
    CHECK_FALSE(hello::decode(std::span(said).first(length)));
  }
  for (std::size_t length = 0; length < answered.size(); ++length) {
    CHECK_FALSE(welcome::decode(std::span(answered).first(length)));
  }
}

TEST_CASE("welcome: a table of what is no address is refused, unless the welcome is a refusal itself") {
  welcome answer;
  for (const char* address : {"", "somewhere", "127.0.0.1:80", "300.1.1.1"}) {
    answer.table = {{"127.0.0.1", 1}, {address, 2}};
    answer.fault = "";
    CHECK_FALSE(welcome::decode(answer.encode()));
    answer.fault = "another job";
    CHECK(welcome::decode(answer.encode()));
  }
}

TEST_CASE("hello and welcome: live through noise") {
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::byte> noise(random() % 60);
    for (std::byte& each : noise) {
      each = static_cast<std::byte>(random() % 8);
    }
    (void)hello::decode(noise);
    (void)welcome::decode(noise);
  }
}

TEST_CASE("run_until: tells a deadline from being done") {
  boost::asio::io_context context;
  CHECK(run_until(context, std::chrono::steady_clock::now(), [] { return true; }));
  CHECK_FALSE(
      run_until(context, std::chrono::steady_clock::now() + std::chrono::milliseconds(20), [] { return false; }));
}
