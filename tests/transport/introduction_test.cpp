#include <gradweave/transport/introduction.hpp>

#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("hello and welcome: survive the way, and every cut of them is refused") {
  const hello came{"0.1.0", "job", 4, 2, "10.0.0.7", 999};
  const auto said = came.encode();
  REQUIRE(hello::decode(said));
  CHECK(hello::decode(said)->rank == 2);
  CHECK(hello::decode(said)->address == "10.0.0.7");
  CHECK(hello::decode(said)->port == 999);
  welcome answer;
  answer.ticket = 77;
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

TEST_CASE("hello and welcome: what is no address is refused") {
  for (const char* address : {"somewhere", "127.0.0.1:80", "300.1.1.1"}) {
    welcome answer;
    answer.table = {{"127.0.0.1", 1}, {address, 2}};
    CHECK_FALSE(welcome::decode(answer.encode()));
    CHECK_FALSE(hello::decode(hello{"0.1.0", "job", 4, 2, address, 999}.encode()));
  }
  welcome nearby;
  nearby.table = {{"", 1}, {"", 2}};
  CHECK(welcome::decode(nearby.encode()));
}

TEST_CASE("welcome: a refusal carries its code") {
  welcome refusal;
  refusal.refuse(errc::timed_out, 3, "rank 3 did not come");
  const auto read = welcome::decode(refusal.encode());
  REQUIRE(read);
  CHECK(read->code == errc::timed_out);
  CHECK(read->culprit == 3);
  CHECK(read->fault == "rank 3 did not come");
}

TEST_CASE("mesh_call: survives the way, and nothing else is one") {
  const auto bytes = mesh_call{7, 3, channel::control}.encode();
  const auto read = mesh_call::decode(bytes);
  REQUIRE(read);
  CHECK((read->ticket == 7 && read->rank == 3 && read->which == channel::control));
  auto unknown = bytes;
  unknown.back() = std::byte{2};
  CHECK_FALSE(mesh_call::decode(unknown));
  CHECK_FALSE(mesh_call::decode(std::span(bytes).first(bytes.size() - 1)));
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
