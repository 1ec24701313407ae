// Laws 1, 3, 5, 6 and 8: bit-identical results on all ranks; averages within the compressor's bound; any ready order;
// new plans lose nothing; the same bits in every run.
#include <gradweave/gradweave.hpp>

#include <cmath>
#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

constexpr std::uint64_t steps = 4;

/// All ranks' gradients after each step: [step][rank].
using outcome = std::vector<std::vector<std::vector<std::byte>>>;

outcome run_trial(network over, std::uint64_t seed, int size, const policy_choice& choice,
                  all_reduce_algorithm algorithm = all_reduce_algorithm::automatic) {
  const auto slots = random_slots(seed, 3 + seed % 20);
  outcome results(steps, std::vector<std::vector<std::byte>>(static_cast<std::size_t>(size)));
  std::mutex checking;
  const auto body = [&](any_backend backend) {
    const int rank = backend.rank();
    trial_model model(slots);
    auto sync = synchronize_trial(model, std::move(backend), choice);
    for (std::uint64_t s = 0; s < steps; ++s) {
      const step_result result = sync.step([&](auto& step) {
        for (const std::uint32_t which : shuffled_slots(slots.size(), seed, rank, s)) {
          model.fill(seed, rank, s, which);
          step.ready({which});
        }
      });
      results[s][static_cast<std::size_t>(rank)] = model.bytes();
      const std::lock_guard lock(checking);
      CHECK(result.step == s);
      CHECK(result.finite());
      for (std::size_t which = 0; which < slots.size(); ++which) {
        const any_tensor& tensor = model.tensor(which);
        for (std::size_t i = 0; i < tensor.elements; ++i) {
          double sum = 0;
          double magnitude = 0;
          for (int r = 0; r < size; ++r) {
            const double value = stored(tensor.kind, trial_model::gradient_of(seed, r, s, which, i));
            sum += value;
            magnitude += std::abs(value);
          }
          const double error = std::abs(tensor.get(i) - sum / size);
          const double allowed = size == 1 ? 0 : average_bound(choice, tensor.kind, size, magnitude / size);
          if (!(error <= allowed)) {
            FAIL_CHECK(name_of(over) << ", seed " << seed << ", " << size << " ranks, " << choice.name << ", step " << s
                                     << ", slot " << which << " (" << element_name(tensor.kind) << "), element " << i
                                     << ": off by " << error << ", allowed " << allowed);
            return;
          }
        }
      }
    }
  };
  run_ranks(over, size, body, {.algorithm = algorithm});
  return results;
}

}  // namespace

TEST_CASE("laws 1, 3, 5, 6: averages are right and bit-identical, whatever the ready order, across a new plan") {
  const testing::watchdog guard("average laws");
  std::uint64_t seed = 1;
  for (const law_case& each : networks_and_policies()) {
    const network over = each.over;
    const policy_choice& choice = each.choice;
    for (const int size : tests::world_sizes({1, 2, 3, 4})) {
      const outcome results = run_trial(over, ++seed, size, choice);
      for (std::size_t s = 0; s < steps; ++s) {
        for (const auto& other : results[s]) {
          CHECK_MESSAGE(other == results[s][0], name_of(over)
                                                    << ", seed " << seed << ", " << choice.name << ", step " << s);
        }
      }
    }
  }
}

TEST_CASE("law 8: the same inputs give the same bits in every run") {
  const testing::watchdog guard("law 8");
  for (const law_case& each : networks_and_policies()) {
    for (const int size : tests::world_sizes({2, 3, 4})) {
      const outcome first = run_trial(each.over, 77, size, each.choice);
      CHECK_MESSAGE(run_trial(each.over, 77, size, each.choice) == first, name_of(each.over)
                                                                              << " " << each.choice.name);
    }
  }
}

TEST_CASE("law 8: sums in rank order give the same bits by messages and in shared memory") {
  const testing::watchdog guard("law 8");
  for (const policy_choice& choice : policy_choices()) {
    for (const int size : tests::world_sizes({2, 3, 4})) {
      const outcome first = run_trial(network::loopback, 77, size, choice, all_reduce_algorithm::shared);
      for (const network over : {network::loopback, network::tcp}) {
        CHECK_MESSAGE(run_trial(over, 77, size, choice, all_reduce_algorithm::direct) == first,
                      name_of(over) << " " << choice.name);
      }
    }
  }
}

TEST_CASE("law 6: a new plan moves no gradient") {
  const testing::watchdog guard("law 6");
  run_ranks(network::loopback, 2, [&](any_backend backend) {
    const auto slots = std::vector<trial_slot>(6, {element_kind::float32, 100, residence::arena});
    trial_model model(slots);
    auto sync = synchronize(model.make_manifest(), std::move(backend), bucketing::ready_order{{900, 500}});
    std::vector<void*> before;
    for (std::size_t s = 0; s < slots.size(); ++s) {
      before.push_back(model.tensor(s).memory);
    }
    const bucket_plan first = sync.plan();
    for (std::uint64_t s = 0; s < 2; ++s) {
      sync.step([&](auto& step) {
        for (std::uint32_t which = 0; which < slots.size(); ++which) {  // registration order: not what was planned for
          step.ready({which});
        }
      });
    }
    if (sync.rank() == 0) {
      CHECK(sync.plan() != first);
      CHECK(sync.plan().buckets.front().front() == slot{0});
      for (std::size_t s = 0; s < slots.size(); ++s) {
        CHECK(model.tensor(s).memory == before[s]);
      }
    }
  });
}
