#include <gradweave/synchronizer/ready_log.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("ready_log: keeps the events of one step, from several threads") {
  detail::ready_log log(200);
  log.begin_step(true);
  CHECK(log.keeps());
  CHECK(log.events().empty());
  std::thread other([&] {
    for (std::uint32_t i = 0; i < 100; ++i) {
      log.add({i}, 1ns);
    }
  });
  for (std::uint32_t i = 100; i < 200; ++i) {
    log.add({i}, 2ns);
  }
  other.join();
  std::vector<std::uint32_t> seen;
  for (const ready_event& event : log.events()) {
    seen.push_back(event.which.index);
  }
  CHECK(seen.size() == 200);
  std::sort(seen.begin(), seen.end());
  CHECK(std::unique(seen.begin(), seen.end()) == seen.end());
  log.begin_step(false);
  CHECK_FALSE(log.keeps());
  CHECK(log.events().empty());
}
