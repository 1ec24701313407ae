#include <gradweave/backend/tls.hpp>

#include <chrono>

#include <doctest/doctest.h>

#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("tls: conforms as a backend") {
  const testing::watchdog guard("backend conformance of tls", 120s);
  const auto run = [](int size, auto&& body) {
    const detail::reserved_port place(0);
    tests::on_threads(size, [&](int rank) {
      body(backend::tls::from_options(
          {.meet = {.rank = rank, .size = size, .port = place.number(), .secret = "a secret"}}));
    });
  };
  const auto report = testing::check_backend(run, {.sizes = {1, 3}});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("tls: without a secret there is no job") {
  CHECK_THROWS_WITH_AS(backend::tls::from_options({.meet = {.rank = 0, .size = 2}}),
                       doctest::Contains("set GRADWEAVE_SECRET on all ranks"), contract_violation);
}
