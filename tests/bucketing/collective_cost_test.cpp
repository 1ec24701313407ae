#include <gradweave/bucketing/collective_cost.hpp>

#include <limits>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;
using bucketing::collective_cost;

TEST_CASE("cost_from: finds the line, and no number below 0") {
  const collective_cost line{.alpha_s = 3e-5, .beta_s_per_byte = 2e-9};
  const collective_cost found = bucketing::cost_from([&](std::size_t bytes) { return line.seconds(bytes); });
  CHECK(found.alpha_s == doctest::Approx(line.alpha_s));
  CHECK(found.beta_s_per_byte == doctest::Approx(line.beta_s_per_byte));
  const collective_cost falling =
      bucketing::cost_from([](std::size_t bytes) { return 1.0 / static_cast<double>(bytes); });
  CHECK(falling.beta_s_per_byte == 0);
  CHECK(falling.alpha_s == 1.0 / bucketing::cost_bytes_small);
}

TEST_CASE("collective_cost: what is no time is refused") {
  CHECK_THROWS_AS((collective_cost{.alpha_s = -1}.check()), contract_violation);
  CHECK_THROWS_AS((collective_cost{.beta_s_per_byte = std::numeric_limits<double>::quiet_NaN()}.check()),
                  contract_violation);
}

TEST_CASE("measure_cost: gives all ranks the same") {
  const testing::watchdog guard("measure_cost");
  for (const int size : {1, 3}) {
    std::vector<collective_cost> measured;
    std::mutex collecting;
    backend::run_loopback(size, [&](backend::loopback backend) {
      const collective_cost cost = bucketing::measure_cost(backend);
      cost.check();
      const std::lock_guard lock(collecting);
      measured.push_back(cost);
    });
    CHECK(measured == std::vector<collective_cost>(static_cast<std::size_t>(size), measured.front()));
    CHECK((size == 1 || measured.front().seconds(bucketing::cost_bytes_large) > 0));
  }
}
