// What docs/reference/stream_lane.md quotes.
#include <gradweave/gradweave.hpp>

#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_loopback.hpp"

namespace gw = gradweave;
using namespace gradweave::tests;

TEST_CASE("docs: a step on streams") {
  const gw::testing::watchdog guard("docs of streams");
  simulated_machine machine;
  run_streams(machine, 2, [&](stream_rank own) {
    const float own_value = own.backend.rank() == 0 ? 1.0F : 3.0F;
    std::vector<float> gradient(3), seen;
    const auto computing = machine.make_queue();
    const auto run = [&](auto work, const simulated_device::stream& on) {
      machine.enqueue(on, {.work = work, .after = {}, .communicator = {}, .rank = 0, .request = {}});
    };
    const auto compute = [&](std::vector<float>& into, const simulated_device::stream& on) {
      run([&into, own_value] { into.assign(into.size(), own_value); }, on);
    };
    const auto update = [&](const std::uint32_t* is_valid, const simulated_device::stream& on) {
      run([&, is_valid] { seen.push_back(*is_valid == 1 ? gradient[0] : -1); }, on);
    };
    gw::manifest gradients;
    const gw::slot weights = gradients.add("weights", gradient);
    auto overlap = own.overlap;
    auto backend = std::move(own.backend);
    // [step]
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), overlap);
    for (int step = 0; step < 4; ++step) {
      sync.step(computing, [&](auto& open) {
        compute(gradient, computing);        // enqueues the backward pass
        open.ready(weights, computing);      // the lane waits for what is on the stream now
      });                                    // returns once everything is enqueued
      update(sync.step_valid(), computing);  // enqueued behind the averages
    }
    const gw::step_result last = sync.synchronize();  // waits
    // [/step]
    CHECK(last.step == 3);
    overlap.make_device().synchronize(computing);
    CHECK(seen == std::vector<float>(4, 2.0F));
  });
}
