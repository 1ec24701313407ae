// Laws 1, 2, 3, 5 and 6 where buckets travel on streams. What an event orders is held back, one after another: no wait is
// there in vain.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/stream_trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

TEST_CASE("streams: after each step all ranks hold the same averages, whatever runs first") {
  const testing::watchdog guard("averages on streams");
  std::uint64_t seed = 1;
  for (const int size : {1, 2, 3, 4}) {
    for (const stream_choice& choice :
         {stream_choice{}, stream_choice{.compression = compression::fp16{}},
          stream_choice{
              .compression = compression::bf16{}, .bucketing = bucketing::per_tensor{}, .average = averaging::sum}}) {
      constexpr std::uint64_t steps = 6;
      simulated_machine machine(++seed);
      std::vector<std::vector<std::vector<double>>> results(static_cast<std::size_t>(size));
      std::vector<double> errors(static_cast<std::size_t>(size));
      run_streams(machine, size, [&](stream_rank own) {
        const int rank = own.backend.rank();
        stream_trainer trainer(machine, rank, 9);
        trainer.reserve(steps);
        {
          auto sync = synchronize_streams(trainer, std::move(own), choice);
          for (std::uint64_t step = 0; step < steps; ++step) {
            if (step == 3) {
              sync.accumulate([&](auto& open) {
                for (std::uint32_t which = 0; which < trainer.slots(); ++which) {
                  open.ready({which}, trainer.main());
                }
              });
            }
            run_stream_step(sync, trainer, step, seed * 100 + step * 10 + static_cast<std::uint64_t>(rank));
          }
          const step_result last = sync.synchronize();
          CHECK(last.step == steps - 1);
          CHECK(last.finite());
          CHECK(*sync.step_valid() == 1);
          CHECK(sync.statistics().steps == steps);
          trainer.wait();  // it reads the arena
        }
        for (std::uint64_t step = 0; step < steps; ++step) {
          errors[static_cast<std::size_t>(rank)] = std::max(
              errors[static_cast<std::size_t>(rank)], trainer.error(size, step, choice.average == averaging::sum));
        }
        results[static_cast<std::size_t>(rank)] = trainer.results();
      });
      CAPTURE(size);
      CAPTURE(seed);
      for (std::size_t r = 0; r < results.size(); ++r) {
        CHECK(results[r] == results[0]);
        CHECK(errors[r] <= (size == 3 ? 0.04 : 0));
      }
    }
  }
}

namespace {

constexpr std::uint64_t held_steps = stream_trainer::streams + 1;

/// In step i rank 0's i-th computing stream is held back until everything else has got as far as it can, in the last step its
/// lane. The greatest error on any rank, with `fault` made on rank 0's device; or infinity where a rank throws.
double error_with(const std::function<void(device_faults&)>& fault, std::size_t& waits) {
  constexpr int size = 2;
  constexpr std::uint64_t steps = held_steps;
  simulated_machine machine;
  std::barrier all(size);
  std::vector<double> errors(size);
  std::atomic<bool> thrown{false};
  run_streams(
      machine, size,
      [&](stream_rank own) {
        const int rank = own.backend.rank();
        const auto lane = own.overlap.lane;
        const auto faults = own.overlap.faults;
        if (rank == 0) {
          fault(*faults);
        }
        stream_trainer trainer(machine, rank, 1);
        trainer.reserve(steps);
        const auto hold = [&](std::uint64_t step, bool holds) {
          if (rank == 0) {  // others come to a collective that has to wait
            machine.hold(step == stream_trainer::streams ? lane : trainer.streams_used()[step], holds);
          }
        };
        try {
          auto sync = synchronize_streams(trainer, std::move(own), {.bucketing = bucketing::per_tensor{}});
          for (std::uint64_t step = 0; step < steps; ++step) {
            hold(step, true);
            run_stream_step(sync, trainer, step, step);
            all.arrive_and_wait();  // everything is enqueued everywhere
            machine.settle();
            while (rank == 0 && faults->queries == 0) {
              std::this_thread::yield();  // until the lane watches
            }
            all.arrive_and_wait();
            hold(step, false);
            sync.synchronize();
            trainer.wait();
          }
          trainer.wait();
        } catch (const sync_error&) {
          thrown = true;
          for (std::uint64_t step = 0; step < steps; ++step) {
            hold(step, false);
          }
          all.arrive_and_drop();
        }
        trainer.wait();
        for (std::uint64_t step = 0; step < steps && !thrown; ++step) {
          errors[static_cast<std::size_t>(rank)] =
              std::max(errors[static_cast<std::size_t>(rank)], trainer.error(size, step, false));
        }
        if (rank == 0) {
          waits = faults->waits;
        }
      },
      {}, 5s);
  return thrown ? 1e9 : std::max(errors[0], errors[1]);
}

}  // namespace

TEST_CASE("streams: no wait for an event is in vain") {
  const testing::watchdog guard("waits");
  std::size_t waits = 0;
  CHECK(error_with([](device_faults&) {}, waits) == 0);
  constexpr std::size_t gradients = stream_trainer::streams, a_step = gradients + 1;  // waits: and one for the end
  REQUIRE(waits == held_steps * a_step);
  std::vector<std::size_t> caught(a_step);  // by the wait's number in a step
  for (std::size_t n = 0; n < waits; ++n) {
    const bool is_end = n % a_step == gradients;
    if (is_end == (n / a_step == gradients)) {
      std::size_t other = 0;
      caught[n % a_step] += error_with([&](device_faults& faults) { faults.ignored_wait = n; }, other) > 0;
    }
  }
  // Each gradient's wait is the one that counts in the step whose held stream is that gradient's; others may be caught too.
  CHECK(std::ranges::all_of(caught, [](std::size_t steps) { return steps != 0; }));
}

TEST_CASE("streams: nothing is given back, and no plan replaced, before the device has got past its last use") {
  const testing::watchdog guard("lives");
  constexpr std::uint64_t steps = 3, never = steps;
  for (const std::uint64_t hurries_in : {never, std::uint64_t{2}, std::uint64_t{0}}) {
    simulated_machine machine;
    std::atomic<int> thrown{0};
    run_streams(machine, 2, [&](stream_rank own) {
      const auto lane = own.overlap.lane;
      const auto faults = own.overlap.faults;
      stream_trainer trainer(machine, own.backend.rank(), 6);
      trainer.reserve(steps);
      try {
        auto sync = synchronize_streams(trainer, std::move(own), {.compression = compression::bf16{}});
        for (std::uint64_t step = 0; step < steps; ++step) {
          if (step == hurries_in) {  // what is enqueued is said to be over, and is not
            sync.synchronize();
            faults->hurries = true;
            machine.hold(lane, true);
          }
          run_stream_step(sync, trainer, step, step);
        }
      } catch (const sync_error&) {
        ++thrown;
      }
      machine.hold(lane, false);
    });
    machine.settle();
    CHECK((machine.uses_of_the_gone > 0) == (hurries_in != never));
    CHECK(thrown == (hurries_in == 0 ? 2 : 0));  // a plan is not replaced without the verdict of the last step
  }
}

namespace {

enum class stream_fault { throws, abandons, forgets, moves, leaves, device_fails };

struct stream_story {
  std::optional<failure> cause;  // of a sync_error
  std::string other;             // of anything else
  std::uint64_t step = 0;        // the step that threw
};

constexpr std::uint64_t fault_step = 3, fault_steps = 8;

stream_story run_faulty(stream_rank own, stream_fault what, bool is_culprit) {
  stream_trainer trainer(own.machine, own.backend.rank(), 5);
  trainer.reserve(fault_steps);
  stream_story told;
  try {
    auto sync = synchronize_streams(trainer, std::move(own));
    const struct idle_before_the_arena_goes {
      stream_trainer& trainer;
      ~idle_before_the_arena_goes() { trainer.wait(); }
    } guard{trainer};
    for (; told.step < fault_steps; ++told.step) {
      if (!is_culprit || told.step != fault_step || what == stream_fault::device_fails) {
        run_stream_step(sync, trainer, told.step, told.step);
        continue;
      }
      if (what == stream_fault::leaves) {
        sync.synchronize();
        told.other = "left";
        return told;
      }
      auto open = sync.begin_step();
      open.ready({0}, trainer.compute(0, told.step));
      if (what == stream_fault::abandons) {
        told.other = "abandoned";
        return told;
      }
      if (what == stream_fault::forgets) {
        open.finish(trainer.main());
      }
      open.abandon("the data is bad");
      throw std::runtime_error("bad data");
    }
  } catch (const sync_error& error) {
    told.cause = error.cause();
  } catch (const std::exception& error) {
    told.other = error.what();
  }
  return told;
}

}  // namespace

TEST_CASE(
    "streams: whatever fails in a step, all ranks tell one story, at the latest when the step after next begins") {
  const testing::watchdog guard("failures on streams");
  for (const stream_fault what : {stream_fault::throws, stream_fault::abandons, stream_fault::forgets,
                                  stream_fault::leaves, stream_fault::device_fails}) {
    for (const int size : {2, 3}) {
      const int culprit = size - 1;
      simulated_machine machine(7);
      const auto communicator = std::make_shared<simulated_communicator>(static_cast<std::size_t>(size));
      if (what == stream_fault::device_fails) {
        communicator->fails_at = 20;
        communicator->failing_rank = static_cast<std::size_t>(culprit);
      }
      std::vector<stream_story> stories(static_cast<std::size_t>(size));
      run_streams(
          machine, size,
          [&](stream_rank own) {
            const int rank = own.backend.rank();
            stories[static_cast<std::size_t>(rank)] = run_faulty(std::move(own), what, rank == culprit);
          },
          communicator);
      CAPTURE(static_cast<int>(what));
      CAPTURE(size);
      std::optional<std::string> sentence;
      for (int rank = 0; rank < size; ++rank) {
        const stream_story& told = stories[static_cast<std::size_t>(rank)];
        CAPTURE(rank);
        CAPTURE(told.other);
        if (rank == culprit && what != stream_fault::forgets && what != stream_fault::device_fails) {
          CHECK_FALSE(told.other.empty());
          continue;
        }
        REQUIRE(told.cause.has_value());
        CAPTURE(told.cause->detail);
        CHECK(told.cause->rank == culprit);
        CHECK(told.cause->code == (what == stream_fault::leaves         ? errc::peer_lost
                                   : what == stream_fault::forgets      ? errc::gradient_missing
                                   : what == stream_fault::device_fails ? errc::internal
                                                                        : errc::aborted));
        if (what != stream_fault::device_fails) {
          CHECK(told.cause->step == static_cast<std::int64_t>(fault_step));
          CHECK(told.step >= fault_step);
          CHECK(told.step <= fault_step + 2);
        }
        sentence = sentence ? sentence : to_string(*told.cause);
        CHECK(to_string(*told.cause) == *sentence);
      }
    }
  }
}

TEST_CASE("streams: a device that does not get on is named once the deadline has passed") {
  const testing::watchdog guard("deadline on streams");
  simulated_machine machine;
  std::vector<std::string> told(2);
  run_streams(
      machine, 2,
      [&](stream_rank own) {
        const int rank = own.backend.rank();
        const auto lane = own.overlap.lane;
        stream_trainer trainer(machine, rank, 1);
        trainer.reserve(1);
        try {
          auto sync = synchronize_streams(trainer, std::move(own), {.bucketing = bucketing::per_tensor{}});
          machine.hold(trainer.main(), true);  // what the lane waits for never comes
          try {
            run_stream_step(sync, trainer, 0, 0);
            sync.synchronize();
          } catch (...) {
            machine.hold(trainer.main(), false);
            throw;
          }
        } catch (const sync_error& error) {
          told[static_cast<std::size_t>(rank)] = error.what();
        }
        trainer.wait();
      },
      {}, 200ms);
  CHECK(told[0] == told[1]);
  CHECK(told[0].find("has not got through it within 200 ms") != std::string::npos);
}

TEST_CASE("streams: what they can't do yet is refused when the manifest is sealed") {
  const testing::watchdog guard("refused on streams");
  simulated_machine machine;
  run_streams(machine, 2, [&](stream_rank own) {
    stream_trainer trainer(machine, own.backend.rank(), 1);
    try {
      auto sync = synchronize_streams(trainer, std::move(own), {.average = averaging::weighted_mean});
      FAIL_CHECK("weights were taken");
    } catch (const std::exception& error) {
      CHECK(std::string(error.what()).find("on a stream all ranks weigh the same") != std::string::npos);
    }
  });
}
