// Laws 1 and 3 under every rule: seeded programs in which ranks use some gradients and others not, several times, after
// accumulating, with samples of their own, until they run out of data; against a reference in double precision.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <random>
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

/// What all ranks do, from a seed.
struct behaviour {
  step_rules rules;
  std::vector<trial_slot> slots;
  std::uint64_t seed;
  bool runs_out;  ///< ranks do, some before others

  explicit behaviour(std::uint64_t from) : slots(random_slots(from, 3 + from % 12)), seed(from) {
    std::mt19937_64 random(from);
    rules.unused_gradients = random() % 2 == 0 ? unused::strict : unused::zero_fill;
    rules.average = static_cast<averaging>(random() % 3);
    rules.divide = rules.average == averaging::mean ? static_cast<division>(random() % 3) : division::after;
    runs_out = random() % 2 == 0;
    if (rules.average == averaging::mean && rules.divide == division::after) {
      rules.joined = static_cast<joined_ranks>(random() % 2);
    }
    rules.uses = random() % 3 == 0 ? use_counts::recorded : use_counts::declared;
    for (trial_slot& each : slots) {
      each.times = static_cast<std::uint32_t>(1 + random() % 3);
    }
  }

  std::uint64_t draw(std::uint64_t a, std::uint64_t b, std::uint64_t c) const {
    std::uint64_t h = seed * 0x9e3779b97f4a7c15U + a * 0xbf58476d1ce4e5b9U + b * 0x94d049bb133111ebU + c;
    h = (h ^ h >> 31) * 0xd6e8feb86659fd93U;
    return h ^ h >> 32;
  }

  static constexpr std::uint64_t steps = 3;

  bool has_data(int rank, std::uint64_t step) const {
    return !runs_out || step < 1 + draw(4, static_cast<std::uint64_t>(rank), 0) % steps;
  }
  bool uses_slot(int rank, std::uint64_t step, std::size_t which) const {
    if (!has_data(rank, step)) {
      return false;
    }
    const bool learning = rules.uses == use_counts::recorded && step == 0;
    return rules.unused_gradients == unused::strict || learning ||
           draw(1, step * 64 + which, static_cast<std::uint64_t>(rank)) % 4 != 0;
  }
  std::uint64_t accumulations(std::uint64_t step) const { return draw(2, step, 0) % 3; }

  /// Whether only the accumulations before a step use a slot, and not its own backward pass.
  bool is_only_accumulated(int rank, std::uint64_t step, std::size_t which) const {
    return rules.unused_gradients == unused::zero_fill && accumulations(step) != 0 &&
           draw(7, step * 64 + which, static_cast<std::uint64_t>(rank)) % 4 == 0;
  }
  std::uint64_t samples(int rank, std::uint64_t step) const {
    if (rules.average != averaging::weighted_mean) {
      return 1;
    }
    return !has_data(rank, step) ? 0 : draw(3, step, static_cast<std::uint64_t>(rank)) % 50;
  }

  /// How much a rank's gradient counts in the average.
  double weight(int rank, int size, std::uint64_t step) const {
    if (rules.joined == joined_ranks::left_out) {
      int live = 0;
      for (int r = 0; r < size; ++r) {
        live += has_data(r, step) ? 1 : 0;
      }
      return 1.0 / live;
    }
    if (rules.average != averaging::weighted_mean) {
      return rules.average == averaging::sum ? 1 : 1.0 / size;
    }
    double total = 0;
    for (int r = 0; r < size; ++r) {
      total += static_cast<double>(samples(r, step));
    }
    return total == 0 ? 0 : static_cast<double>(samples(rank, step)) / total;
  }
};

/// A count that comes from one rank, a float that comes from another, and averages.
struct buffers_of {
  explicit buffers_of(const behaviour& does, int size)
      : from{static_cast<int>(does.draw(5, 0, 0) % static_cast<std::uint64_t>(size)),
             static_cast<int>(does.draw(5, 1, 0) % static_cast<std::uint64_t>(size))} {}

  int from[2];
  std::vector<std::int64_t> count = std::vector<std::int64_t>(3);
  std::vector<float> value = std::vector<float>(2);
  std::vector<double> mean = std::vector<double>(4);

  manifest add_to(manifest gradients) {
    gradients.add_buffer("count", count, buffer_rule::broadcast(from[0]));
    gradients.add_buffer("value", value, buffer_rule::broadcast(from[1]));
    gradients.add_buffer("mean", mean, buffer_rule::average());
    return gradients;
  }

  static std::int64_t number(const behaviour& does, int rank, std::uint64_t step) {
    return static_cast<std::int64_t>(does.draw(6, step, static_cast<std::uint64_t>(rank)) % 1000);
  }
  void run_forward(const behaviour& does, int rank, std::uint64_t step) {
    const std::int64_t drawn = number(does, rank, step);
    count.assign(3, drawn);
    value.assign(2, static_cast<float>(drawn));
    mean.assign(4, static_cast<double>(drawn));
  }

  std::string fault(const behaviour& does, int size, std::uint64_t step) const {
    std::vector<int> live;
    double sum = 0;
    for (int r = 0; r < size; ++r) {
      if (does.has_data(r, step)) {
        live.push_back(r);
        sum += static_cast<double>(number(does, r, step));
      }
    }
    const auto expected = [&](int rank) { return number(does, does.has_data(rank, step) ? rank : live.front(), step); };
    const bool right = count[2] == expected(from[0]) && value[1] == static_cast<float>(expected(from[1])) &&
                       mean[3] == sum / static_cast<double>(live.size());
    return right ? "" : "the buffers are not what they should be";
  }
};

/// Every use of every slot that a rank uses in a pass, in an order of its own.
std::vector<std::uint32_t> all_uses(const behaviour& does, int rank, std::uint64_t step, bool accumulates) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t which = 0; which < does.slots.size(); ++which) {
    if (does.uses_slot(rank, step, which) && (accumulates || !does.is_only_accumulated(rank, step, which))) {
      order.insert(order.end(), does.slots[which].times, which);
    }
  }
  std::mt19937_64 random(does.seed * 100 + static_cast<std::uint64_t>(rank) + step);
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

std::string check_step(const behaviour& does, const policy_choice& choice, const trial_model& model,
                       const std::vector<std::vector<std::byte>>& before, int size, std::uint64_t step) {
  for (std::size_t which = 0; which < does.slots.size(); ++which) {
    const any_tensor& tensor = model.tensor(which);
    bool used = false;
    for (int r = 0; r < size; ++r) {
      used = used || does.uses_slot(r, step, which);
    }
    if (!used) {
      if (tensor.bytes() != before[which]) {
        return "slot " + std::to_string(which) + ", which no rank used, has changed";
      }
      continue;
    }
    for (std::size_t i = 0; i < tensor.elements; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int r = 0; r < size; ++r) {
        if (does.uses_slot(r, step, which)) {
          const double value =
              does.weight(r, size, step) * stored(tensor.kind, trial_model::gradient_of(does.seed, r, step, which, i));
          sum += value;
          magnitude += std::abs(value);
        }
      }
      if (size == 1) {
        sum = magnitude = stored(tensor.kind, trial_model::gradient_of(does.seed, 0, step, which, i));
      }
      // Weights, and quotients before the sum, are rounded once more; sums are N times a mean, with N times its error.
      const double allowed = size == 1 ? 0 : 4 * size * average_bound(choice, tensor.kind, size, std::abs(magnitude));
      if (const double error = std::abs(tensor.get(i) - sum); !(error <= allowed)) {
        return "slot " + std::to_string(which) + " (" + std::string(element_name(tensor.kind)) + "), element " +
               std::to_string(i) + ": " + std::to_string(tensor.get(i)) + ", not " + std::to_string(sum);
      }
    }
  }
  return "";
}

void run_behaviour(network over, const behaviour& does, int size, const policy_choice& choice) {
  std::mutex checking;
  std::vector<std::vector<std::byte>> results(behaviour::steps);
  run_ranks(over, size, [&](any_backend backend) {
    const int rank = backend.rank();
    trial_model model(does.slots);
    buffers_of buffers(does, size);
    auto sync = synchronize_trial(buffers.add_to(model.make_manifest()), std::move(backend), choice, does.rules);
    std::vector<std::vector<std::byte>> before;
    const auto remember = [&] {
      before.clear();
      for (std::size_t which = 0; which < model.size(); ++which) {
        before.push_back(model.tensor(which).bytes());
      }
    };
    std::uint64_t s = 0;
    const auto check = [&] {
      std::string fault = check_step(does, choice, model, before, size, s);
      fault = fault.empty() ? buffers.fault(does, size, s) : fault;
      const std::lock_guard lock(checking);
      const std::string run = std::string(name_of(over)) + ", seed " + std::to_string(does.seed) + ", " +
                              std::to_string(size) + " ranks, " + choice.name + ", step " + std::to_string(s) + ": ";
      if (!fault.empty()) {
        FAIL_CHECK(run << fault);
      }
      results[s] = results[s].empty() ? model.bytes() : results[s];
      CHECK_MESSAGE(results[s] == model.bytes(), run << "ranks differ");
      ++s;
      remember();
    };
    remember();
    while (s < behaviour::steps && does.has_data(rank, s)) {
      bool accumulates = true;
      const auto backward = [&](auto& step) {
        buffers.run_forward(does, rank, s);
        for (const std::uint32_t which : all_uses(does, rank, s, accumulates)) {
          model.fill(does.seed, rank, s, which);
          step.ready({which});
        }
      };
      for (std::uint64_t window = 0; window < does.accumulations(s); ++window) {
        sync.accumulate(backward);
      }
      accumulates = false;
      sync.step(backward, {.samples = does.samples(rank, s)});
      check();
    }
    sync.join(check);
  });
}

}  // namespace

TEST_CASE("laws 1 and 3: unused gradients, several uses, accumulation, sums, weighted means and uneven inputs") {
  const testing::watchdog guard("behaviour laws");
  std::uint64_t seed = 1;
  for (const law_case& each : networks_and_policies()) {
    for (const int size : world_sizes({1, 2, 3, 4})) {
      for (std::size_t program = 0; program < repetitions(2); ++program) {
        run_behaviour(each.over, behaviour(seed++), size, each.choice);
      }
    }
  }
}
