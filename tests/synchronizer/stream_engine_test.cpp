#include <gradweave/synchronizer/stream_engine.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("stream_engine: the host gets ahead of the device by one step, and no more than two") {
  const testing::watchdog guard("stream_engine ahead");
  simulated_machine machine;
  run_streams(machine, 1, [&](stream_rank own) {
    const auto lane = own.overlap.lane;
    stream_trainer trainer(machine, 0, 2);
    trainer.reserve(8);
    auto sync = synchronize_streams(trainer, std::move(own), {.bucketing = bucketing::per_tensor{}});
    machine.hold(lane, true);
    run_stream_step(sync, trainer, 0, 0);  // they return, though the device has done nothing
    run_stream_step(sync, trainer, 1, 1);
    CHECK(sync.statistics().steps == 0);
    std::atomic<bool> begun{false};
    std::thread releasing([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      CHECK_FALSE(begun);
      machine.hold(lane, false);
    });
    auto third = sync.begin_step();
    begun = true;
    CHECK(sync.statistics().steps >= 1);
    third.abandon("enough");
    releasing.join();
    CHECK_THROWS_AS(static_cast<void>(sync.begin_step()), sync_error);
    trainer.wait();
  });
}
