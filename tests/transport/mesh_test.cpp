#include <gradweave/transport/mesh.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include <gradweave/launch.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// What each of the processes that come to one place is told: "" where it got its transport.
std::vector<std::string> told(std::vector<rendezvous_options> who) {
  const detail::reserved_port held(0);
  std::vector<std::string> answers(who.size());
  on_threads(static_cast<int>(who.size()), [&](int i) {
    auto& place = who[static_cast<std::size_t>(i)];
    place.port = held.number();
    try {
      const asio_transport made = connect_mesh(place);
    } catch (const sync_error& error) {
      answers[static_cast<std::size_t>(i)] = error.what();
    }
  });
  return answers;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("connect_mesh: one rank needs no network") {
  CHECK(connect_mesh({.rank = 0, .size = 1, .address = "no such host"}).size() == 1);
  CHECK_THROWS_AS(connect_mesh({.rank = 2, .size = 2}), contract_violation);
  CHECK_THROWS_AS(connect_mesh({.job = std::string(257, 'x')}), contract_violation);
  CHECK_THROWS_AS(connect_mesh({.job = "two\nlines"}), contract_violation);
}

TEST_CASE("connect_mesh: ranks that come in any order find each other, over IPv4, IPv6 and by name") {
  const testing::watchdog guard("find each other");
  for (const char* address : {"127.0.0.1", "::1", "localhost"}) {
    std::vector<rendezvous_options> ranks;
    for (int rank = 4; rank >= 0; --rank) {
      ranks.push_back({.rank = rank, .size = 5, .address = address, .timeout = 20s});
    }
    for (const std::string& answer : told(ranks)) {
      CHECK_MESSAGE(answer.empty(), address << ": " << answer);
    }
  }
}

TEST_CASE("connect_mesh: with a secret that all know") {
  const testing::watchdog guard("secret");
  for (const std::string& answer : told({{.rank = 0, .size = 3, .secret = "one", .timeout = 20s},
                                         {.rank = 1, .size = 3, .secret = "one", .timeout = 20s},
                                         {.rank = 2, .size = 3, .secret = "one", .timeout = 20s}})) {
    CHECK_MESSAGE(answer.empty(), answer);
  }
}

TEST_CASE("connect_mesh: who knows another secret, or none, does not get in, and all are told what to look at") {
  const testing::watchdog guard("other secrets");
  const auto answers = told({{.rank = 0, .size = 4, .secret = "one", .timeout = 2s},
                             {.rank = 1, .size = 4, .secret = "one", .timeout = 2s},
                             {.rank = 2, .size = 4, .secret = "two", .timeout = 2s},
                             {.rank = 3, .size = 4, .timeout = 2s}});
  for (const int rank : {0, 1}) {
    const std::string& answer = answers[static_cast<std::size_t>(rank)];
    CHECK(contains(answer, "did not come within 2000 ms: 2, 3"));
    CHECK(contains(answer, "times somebody came with another secret, or only one of both has one (GRADWEAVE_SECRET)"));
  }
  for (const int rank : {2, 3}) {
    CHECK(contains(answers[static_cast<std::size_t>(rank)], "do not know the same secret"));
  }
}

TEST_CASE("connect_mesh: by a file that rank 0 writes, over what a former job left") {
  const testing::watchdog guard("meeting file");
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradweave_mesh_" + std::to_string(::getpid()))).string();
  std::ofstream(file) << detail::to_text(detail::meeting_place{"default", detail::host_identity(), {}});
  for (const std::string& answer : told({{.rank = 0, .size = 3, .file = file, .timeout = 20s},
                                         {.rank = 1, .size = 3, .file = file, .timeout = 20s},
                                         {.rank = 2, .size = 3, .file = file, .timeout = 20s}})) {
    CHECK_MESSAGE(answer.empty(), answer);
  }
  CHECK_FALSE(std::filesystem::exists(file));
  const auto refused = told({{.rank = 0, .size = 2, .file = "/no/such/folder/file", .timeout = 500ms},
                             {.rank = 1, .size = 2, .file = "/no/such/folder/file", .timeout = 500ms}});
  CHECK(contains(refused[0], "can't write the meeting file '/no/such/folder/file'"));
  CHECK(contains(refused[1], "rank 0 has not written that file"));
}

TEST_CASE("connect_mesh: at the next port where a stranger has the first, who says nothing or something else") {
  const testing::watchdog guard("next port");
  boost::asio::io_context context;
  boost::asio::ip::tcp::acceptor silent(context);
  std::uint16_t port = 0;
  while (!silent.is_open()) {
    port = free_port();
    if (port < 65000) {
      silent = detail::listen_at(context, port);
    }
  }
  std::vector<std::string> answers(2);
  on_threads(2, [&](int rank) {
    try {
      connect_mesh({.rank = rank, .size = 2, .port = port, .ports = 4, .timeout = 20s});
    } catch (const sync_error& error) {
      answers[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  CHECK_MESSAGE(answers[0].empty(), answers[0]);
  CHECK_MESSAGE(answers[1].empty(), answers[1]);
}

TEST_CASE("connect_mesh: two jobs that try the same ports find each their own") {
  const testing::watchdog guard("two jobs, same ports");
  const std::uint16_t port = free_port();
  std::vector<std::string> answers(4);
  on_threads(4, [&](int i) {
    try {
      connect_mesh({.rank = i % 2,
                    .size = 2,
                    .port = static_cast<std::uint16_t>(std::min<int>(port, 65000)),
                    .ports = 16,
                    .job = i < 2 ? "one" : "two",
                    .timeout = 20s});
    } catch (const sync_error& error) {
      answers[static_cast<std::size_t>(i)] = error.what();
    }
  });
  for (const std::string& answer : answers) {
    CHECK_MESSAGE(answer.empty(), answer);
  }
}

TEST_CASE("connect_mesh: over a chosen interface; one that is not there is refused with those that are") {
  const testing::watchdog guard("interfaces");
  for (const std::string& answer : told({{.rank = 0, .size = 2, .interfaces = "lo", .timeout = 20s},
                                         {.rank = 1, .size = 2, .interfaces = "lo", .timeout = 20s}})) {
    CHECK_MESSAGE(answer.empty(), answer);
  }
  CHECK_THROWS_AS(connect_mesh({.rank = 1, .size = 2, .interfaces = "no_such_interface"}), contract_violation);
}

TEST_CASE("connect_mesh: where rank 0 can't listen it says where, and that the port is taken") {
  boost::asio::io_context context;
  const auto taken = detail::listen_at(context, 0);
  try {
    connect_mesh({.rank = 0, .size = 2, .port = taken.local_endpoint().port(), .timeout = 1s});
    FAIL("it listens");
  } catch (const sync_error& error) {
    CHECK(contains(error.what(), "can't receive the others there"));
    CHECK(contains(error.what(), "already in use"));
  }
}

TEST_CASE("connect_mesh: another world size is told on all sides") {
  const testing::watchdog guard("world size");
  for (const std::string& answer :
       told({{.rank = 0, .size = 2, .timeout = 20s}, {.rank = 1, .size = 3, .timeout = 20s}})) {
    CHECK(contains(answer, "rank 1 ("));
    CHECK(contains(answer, ") believes that the job has 3 ranks, rank 0 2"));
  }
}

TEST_CASE("connect_mesh: a doubled rank is told on all sides") {
  const testing::watchdog guard("doubled rank");
  for (const std::string& answer : told({{.rank = 0, .size = 3, .timeout = 20s},
                                         {.rank = 1, .size = 3, .timeout = 20s},
                                         {.rank = 1, .size = 3, .timeout = 20s}})) {
    CHECK(contains(answer, "two processes came as rank 1"));
  }
}

TEST_CASE("connect_mesh: a process of another job is told so, and disturbs nobody") {
  const testing::watchdog guard("another job");
  const auto answers = told({{.rank = 0, .size = 2, .job = "mine", .timeout = 20s},
                             {.rank = 1, .size = 2, .job = "yours", .timeout = 3s},
                             {.rank = 1, .size = 2, .job = "mine", .timeout = 20s}});
  CHECK(answers[0].empty());
  CHECK((contains(answers[1], "another job, 'mine'") || contains(answers[1], "rank 0 was not reached")));
  CHECK(answers[2].empty());
}

TEST_CASE("connect_mesh: ranks that do not come are named to those who did") {
  const testing::watchdog guard("missing ranks");
  for (const std::string& answer :
       told({{.rank = 0, .size = 4, .timeout = 3s}, {.rank = 2, .size = 4, .timeout = 3s}})) {
    CHECK(contains(answer, "did not come within 3000 ms: 1, 3"));
  }
}

TEST_CASE("connect_mesh: a rank that came and is gone before all are there is told to the others at once") {
  const testing::watchdog guard("gone again");
  const detail::reserved_port held(0);
  std::vector<std::string> answers(3);
  on_threads(3, [&](int rank) {
    const rendezvous_options place{.rank = rank, .size = 4, .port = held.number(), .timeout = 50s};
    if (rank == 2) {
      boost::asio::io_context context;
      const auto until = std::chrono::steady_clock::now() + 50s;
      const detail::tcp_endpoint host(boost::asio::ip::address_v4::loopback(), held.number());
      std::optional<detail::tcp_socket> socket;
      for (std::string fault; !socket;) {
        socket = detail::connect_until(context, host, std::nullopt, until, fault);
      }
      CHECK_FALSE(detail::prove_secret(context, *socket, "", until));
      const detail::hello came{std::string(version_string), "default", 4, 2, "", 1};
      detail::send_message(*socket, detail::message_kind::introduction, came.encode());
      return;
    }
    try {
      connect_mesh(place);
    } catch (const sync_error& error) {
      answers[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  for (const int rank : {0, 1}) {
    CHECK(contains(answers[static_cast<std::size_t>(rank)], "rank 2 (127.0.0.1 port "));
    CHECK(contains(answers[static_cast<std::size_t>(rank)], "came, and is gone again"));
  }
}

TEST_CASE("connect_mesh: a rank 0 that is gone before all are there is told to those who came, at once") {
  const testing::watchdog guard("rank 0 gone");
  boost::asio::io_context context;
  auto acceptor = detail::listen_at(context, 0);
  const std::uint16_t port = acceptor.local_endpoint().port();
  bool came = false;
  std::string answer;
  std::thread visitor([&] {
    try {
      connect_mesh({.rank = 1, .size = 2, .port = port, .timeout = 50s});
    } catch (const sync_error& error) {
      answer = error.what();
    }
  });
  {
    detail::reception desk(context, std::move(acceptor), "", [&](detail::tcp_socket guest, std::span<const std::byte>) {
      detail::send_message(guest, detail::message_kind::noted, {});
      came = true;
    });
    detail::run_until(context, std::chrono::steady_clock::now() + 50s, [&] { return came; });
  }
  visitor.join();
  CHECK(contains(answer, "rank 0 is gone before all ranks had come"));
}

TEST_CASE("connect_mesh: where rank 0 does not come the others say so, with what they met instead") {
  const testing::watchdog guard("no rank 0");
  for (const std::string& answer : told({{.rank = 1, .size = 2, .timeout = 300ms}})) {
    CHECK(contains(answer, "rank 0 was not reached within 300 ms"));
    CHECK(contains(answer, "refused"));
  }
}
