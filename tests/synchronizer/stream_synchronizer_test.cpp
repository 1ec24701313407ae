#include <gradweave/synchronizer/stream_synchronizer.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// Compiles: nothing is required beyond the concepts.
[[maybe_unused]] void synchronize_archetypes(manifest gradients) {
  using testing::stream_archetype;
  auto sync = synchronize(std::move(gradients), testing::stream_backend_archetype{}, testing::bucketing_archetype(0),
                          testing::stream_compression_archetype(0), testing::stream_overlap_archetype(0));
  sync.accumulate([](auto& open) { open.ready({0}, stream_archetype(0)); });
  sync.step(stream_archetype(0), [](auto& open) { open.ready({0}, stream_archetype(0)); });
  static_cast<void>(sync.synchronize());
}

/// What ranks are told whose gradients a program changed in a way that a stream can't follow.
std::string refusal(bool moves) {
  simulated_machine machine;
  std::vector<std::string> told(2);
  run_streams(machine, 2, [&](stream_rank own) {
    const auto rank = static_cast<std::size_t>(own.backend.rank());
    std::vector<float> gradient(5);
    const auto computing = machine.make_queue();
    try {
      manifest gradients;
      const slot only = gradients.add("only", gradient);
      auto sync =
          synchronize(std::move(gradients), std::move(own.backend), own.overlap,
                      stream_compression_choice(compression::none{}), stream_bucketing_choice(bucketing::per_tensor{}));
      sync.step(computing, [&](auto& step) {
        if (moves) {
          gradient = std::vector<float>(5);
        } else {
          step.ready(only, computing);
        }
        step.ready(only, computing);
      });
    } catch (const std::exception& error) {
      told[rank] = error.what();
    }
  });
  CHECK(told[0] != "");
  CHECK(told[1] != "");
  return told[0] + told[1];
}

}  // namespace

TEST_CASE("stream synchronizer: parameters of one rank reach all, and what is not finite is counted on all ranks") {
  const testing::watchdog guard("stream synchronizer");
  simulated_machine machine;
  run_streams(machine, 3, [&](stream_rank own) {
    const int rank = own.backend.rank();
    std::vector<float> parameter(4, static_cast<float>(rank)), gradient(4, 1.0F);
    const auto computing = machine.make_queue();
    manifest gradients;
    const slot only = gradients.add("only", parameter, gradient);
    auto sync =
        synchronize(std::move(gradients), std::move(own.backend), own.overlap, parameters{.broadcast_from = 2},
                    stream_compression_choice(compression::fp16{}), stream_bucketing_choice(bucketing::per_tensor{}));
    CHECK(parameter == std::vector<float>(4, 2.0F));
    gradient[1] = rank == 1 ? std::numeric_limits<float>::infinity() : 1.0F;
    sync.step(computing, [&](auto& step) { step.ready(only, computing); }, {.loss_scale = 2});
    CHECK(sync.synchronize().non_finite == 2);  // as it came, and in the average
    CHECK(sync.verdict()->is_finite == 0);
    CHECK(*sync.step_valid() == 1);
  });
}

TEST_CASE("stream synchronizer: a gradient that moved, or is ready twice, is told on every rank") {
  const testing::watchdog guard("stream synchronizer refuses");
  CHECK(refusal(true).find("'only' lies elsewhere than when it was registered") != std::string::npos);
  CHECK(refusal(false).find("'only' is ready for the second time in one step") != std::string::npos);
}
