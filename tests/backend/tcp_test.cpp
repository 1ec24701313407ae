#include <gradweave/backend/tcp.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/split_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/grid.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

template <class Backend>
std::string value_of(const Backend& backend, const std::string& key) {
  description said;
  backend.describe(said);
  for (const auto& entry : said.entries()) {
    if (entry.key == key) {
      return entry.value;
    }
  }
  return "";
}

}  // namespace

TEST_CASE("tcp: conforms as a backend, at 1 to 4 ranks") {
  const testing::watchdog guard("backend conformance of tcp", 120s);
  const auto report = testing::check_backend([](int size, auto&& body) { tests::run_tcp(size, body); },
                                             {.sizes = tests::world_sizes({1, 2, 3, 4})});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("tcp: makes groups as it should, with and without shared memory") {
  const testing::watchdog guard("groups of tcp", 120s);
  for (const bool share : {false, true}) {
    const auto report = testing::check_split([&](int size, auto&& body) { tests::run_tcp(size, body, {}, share); },
                                             tests::world_sizes(share ? std::vector{4} : std::vector{1, 2, 3}));
    CHECK_MESSAGE(report.passed(), to_string(report));
  }
}

TEST_CASE("tcp: a grid of groups averages over rows and columns at once, and groups share memory where the job does") {
  const testing::watchdog guard("grid over tcp", 120s);
  tests::run_tcp(
      4,
      [](backend::tcp::backend_type world) {
        const auto group = world.split(world.rank() % 2, 0).value();
        CHECK(value_of(group, "group") ==
              (world.rank() % 2 == 0 ? "ranks 0 and 2 of the job" : "ranks 1 and 3 of the job"));
        CHECK(value_of(group, "all_reduce") == value_of(world, "all_reduce"));
        tests::run_grid(world);
      },
      {}, true);
  tests::check_grid_tells_of_failure([](int size, auto&& body) { tests::run_tcp(size, body); });
}

TEST_CASE("tcp: a timeout names the rank that is missing") {
  const testing::watchdog guard("timeout over tcp", 120s);
  const auto report =
      testing::check_backend_timeout([](int size, auto&& body) { tests::run_tcp(size, body, {.timeout = 1500ms}); });
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("tcp: the report says from the start who is let in, and which interface is used") {
  const testing::watchdog guard("report of tcp");
  for (const bool closed : {false, true}) {
    const detail::reserved_port place(0);
    tests::on_threads(2, [&](int rank) {
      std::vector<float> gradient(3);
      manifest gradients;
      gradients.add("weight", gradient);
      const auto sync = synchronize(
          std::move(gradients),
          backend::tcp::from_options(
              {.meet = {.rank = rank, .size = 2, .port = place.number(), .secret = closed ? "a secret" : ""}}));
      const std::string report = sync.report();
      CHECK(report.find(closed ? "  backend.strangers = secret\n"
                               : "  backend.strangers = let in: the job is open to its network") != std::string::npos);
      CHECK(report.find("  talks from = 127.0.0.1 (lo)\n") != std::string::npos);
    });
  }
}
