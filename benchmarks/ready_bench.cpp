// What does a step cost beyond communication? `ready` for every slot and the end of the step, on one rank.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <gradweave/gradweave.hpp>

namespace {

namespace gw = gradweave;

/// Slots of 16 elements, each a vector of its own. The time is that of one slot.
void ready_and_end_of_step(benchmark::State& state) {
  const auto slots = static_cast<std::size_t>(state.range(0));
  gw::backend::run_loopback(1, [&](gw::backend::loopback backend) {
    std::vector<std::vector<float>> tensors(slots, std::vector<float>(16));
    gw::manifest gradients;
    for (std::size_t s = 0; s < slots; ++s) {
      gradients.add("g" + std::to_string(s), tensors[s]);
    }
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    for (auto _ : state) {
      sync.step([&](auto& step) {
        for (std::size_t s = slots; s-- > 0;) {
          step.ready({static_cast<std::uint32_t>(s)});
        }
      });
    }
    state.counters["a_slot"] = benchmark::Counter(static_cast<double>(state.iterations()) * static_cast<double>(slots),
                                                  benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  });
}
BENCHMARK(ready_and_end_of_step)->Arg(10'000)->Arg(100)->UseRealTime();

/// The same on two ranks, where gradients are copied, reduced and copied back: what this library's own work costs a
/// slot when communication is as cheap as it gets. Reported by rank 0, which takes as many steps as rank 1.
void ready_and_end_of_step_of_two(benchmark::State& state) {
  const auto slots = static_cast<std::size_t>(state.range(0));
  constexpr int steps = 50;
  for (auto _ : state) {
    std::int64_t nanoseconds = 0;
    gw::backend::run_loopback(2, [&](gw::backend::loopback backend) {
      std::vector<std::vector<float>> tensors(slots, std::vector<float>(16));
      gw::manifest gradients;
      for (std::size_t s = 0; s < slots; ++s) {
        gradients.add("g" + std::to_string(s), tensors[s]);
      }
      const int rank = backend.rank();
      auto sync = gw::synchronize(std::move(gradients), std::move(backend));
      for (int i = 0; i < steps; ++i) {
        sync.step([&](auto& step) {
          for (std::size_t s = slots; s-- > 0;) {
            step.ready({static_cast<std::uint32_t>(s)});
          }
        });
      }
      if (rank == 0) {
        nanoseconds = sync.statistics().step_time.count();
      }
    });
    state.SetIterationTime(static_cast<double>(nanoseconds) * 1e-9);
    state.counters["ns_a_slot"] = static_cast<double>(nanoseconds) / steps / static_cast<double>(slots);
  }
}
BENCHMARK(ready_and_end_of_step_of_two)->Arg(10'000)->UseManualTime()->Iterations(3)->Repetitions(3);

}  // namespace
