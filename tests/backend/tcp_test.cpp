#include <gradweave/backend/tcp.hpp>

#include <chrono>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("tcp: conforms as a backend, at 1 to 4 ranks") {
  const testing::watchdog guard("backend conformance of tcp", 120s);
  const auto report = testing::check_backend([](int size, auto&& body) { tests::run_tcp(size, body); });
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("tcp: a timeout names the rank that is missing") {
  const testing::watchdog guard("timeout over tcp", 120s);
  const auto report =
      testing::check_backend_timeout([](int size, auto&& body) { tests::run_tcp(size, body, {.timeout = 1500ms}); });
  CHECK_MESSAGE(report.passed(), to_string(report));
}
