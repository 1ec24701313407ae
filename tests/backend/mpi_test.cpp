#include <gradweave/backend/mpi.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/split_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/grid.hpp"
#include "tests/support/mpi.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("mpi: conforms as a backend") {
  const testing::watchdog guard("backend conformance of mpi");
  const int size = tests::mpi_world::instance().size();
  tests::run_mpi run;
  const auto report = testing::check_backend(run, {.sizes = {size}});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("mpi: makes groups as it should") {
  const testing::watchdog guard("groups of mpi");
  tests::run_mpi run;
  const auto report = testing::check_split(run, {tests::mpi_world::instance().size()});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("mpi: a timeout names the rank that is missing") {
  const testing::watchdog guard("timeout over mpi");
  if (tests::mpi_world::instance().size() > 1) {
    tests::run_mpi run({.timeout = 1000ms});
    const auto report = testing::check_backend_timeout(run, {tests::mpi_world::instance().size()});
    CHECK_MESSAGE(report.passed(), to_string(report));
  }
}

TEST_CASE("mpi: conforms where no count is over 1000") {
  const testing::watchdog guard("backend conformance of mpi, in small counts");
  tests::run_mpi run({.count_max = 1000});
  const auto report = testing::check_backend(run, {.sizes = {tests::mpi_world::instance().size()}});
  CHECK_MESSAGE(report.passed(), to_string(report));
}
