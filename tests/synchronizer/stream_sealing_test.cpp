#include <gradweave/synchronizer/stream_sealing.hpp>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_loopback.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("stream_sealing: gradients with memory of their own stay there, those of the arena move; ranks compare all") {
  const testing::watchdog guard("stream_sealing");
  simulated_machine machine;
  std::vector<std::string> told(2);
  run_streams(machine, 2, [&](stream_rank own) {
    std::vector<float> mine(3), before(4);
    std::span<float> resident(before);
    const auto entries = [&](const char* name) {
      manifest made;
      made.add("mine", mine);
      made.add(name, in_arena(resident));
      return detail::without_copies(std::move(made));
    };
    detail::gradient_table gradients(entries("resident"));
    auto arena = detail::place_gradients_for_streams(own.backend, gradients, {}, {});
    CHECK(gradients.memory({0}) == reinterpret_cast<std::byte*>(mine.data()));
    CHECK(reinterpret_cast<std::byte*>(resident.data()) == arena.data());
    detail::gradient_table others(entries(own.backend.rank() == 0 ? "one" : "other"));
    try {
      detail::place_gradients_for_streams(own.backend, others, {}, {});
    } catch (const sync_error& error) {
      told[static_cast<std::size_t>(own.backend.rank())] = error.what();
    }
  });
  CHECK(told[0] == told[1]);
  CHECK(told[0].find("rank 0 has 'one'") != std::string::npos);
}
