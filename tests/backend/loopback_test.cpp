#include <gradweave/backend/loopback.hpp>

#include <atomic>
#include <stdexcept>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

TEST_CASE("run_loopback: runs every rank once, each on a thread of its own") {
  std::atomic<int> ranks{0};
  backend::run_loopback(4, [&](backend::loopback backend) {
    CHECK(backend.size() == 4);
    ranks += 1 << (4 * backend.rank());
    run_collective(backend, {});
  });
  CHECK(ranks == 0x1111);
}

TEST_CASE("run_loopback: rethrows what the rank at fault threw, not what its peers did") {
  const testing::watchdog guard("loopback rethrows");
  CHECK_THROWS_WITH_AS(backend::run_loopback(3,
                                             [](backend::loopback backend) {
                                               if (backend.rank() == 2) {
                                                 throw std::domain_error("out of coffee");
                                               }
                                               run_collective(backend, {});
                                             }),
                       "out of coffee", std::domain_error);
}

TEST_CASE("run_loopback: a rank that leaves makes its peers throw peer_lost, and that is rethrown") {
  const testing::watchdog guard("loopback peer lost");
  try {
    backend::run_loopback(3, [](backend::loopback backend) {
      if (backend.rank() != 1) {
        run_collective(backend, {});
      }
    });
    FAIL("no exception");
  } catch (const sync_error& error) {
    CHECK(error.code() == errc::peer_lost);
    CHECK(error.rank() == 1);
  }
}

TEST_CASE("run_loopback: no ranks are refused") {
  CHECK_THROWS_AS(backend::run_loopback(0, [](backend::loopback) {}), contract_violation);
}
