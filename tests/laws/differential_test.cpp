// Laws 1, 2, 3 and 6 under every rule: seeded random programs against a reference in double precision that shares no code
// with the library. A program that fails is made as small as it can be, and printed.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/pairwise.hpp"
#include "tests/support/program.hpp"
#include "tests/support/program_run.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/shrinking.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

bool is_full() { return std::getenv("GRADWEAVE_TEST_FULL") != nullptr; }

/// Connections take longer to make than the programs run: few are over them.
network network_of(std::uint64_t seed) {
  if (is_full() && seed % 10 == 0) {
    return networks[seed / 10 % std::size(networks)];
  }
  return seed % 100 == 0 ? network::tcp : seed % 100 == 50 ? network::shared_memory : network::loopback;
}

/// Empty where all is as the reference says, else what is not, with the smallest program that shows something.
std::string shrunk_fault(const program& whole, network over, rank_threads& threads) {
  std::string fault = program_fault(whole, over, threads);
  if (fault.empty()) {
    return "";
  }
  std::string last;
  const program small = shrink(whole, [&](const program& candidate) {
    std::string still = program_fault(candidate, over, threads);
    last = still.empty() ? last : still;
    return !still.empty();
  });
  return std::string("over ") + name_of(over) + ": " + fault + "\n" + to_text(whole) + "shrunk to: " + to_text(small) +
         "where " + (last.empty() ? fault : last);
}

std::string fault_of_seed(std::uint64_t seed, rank_threads& threads) {
  const std::string fault = shrunk_fault(random_program(seed), network_of(seed), threads);
  return fault.empty() ? "" : "GRADWEAVE_TEST_SEED=" + std::to_string(seed) + " runs this alone: " + fault;
}

/// What a program may do besides sending gradients.
struct behaviour {
  const char* name;
  bool (*is_in)(const program& what);
};

bool any_step(const program& what, bool (*is_so)(const program_step& step)) {
  return std::any_of(what.steps.begin(), what.steps.end(), is_so);
}

bool any_slot(const program& what, bool (*is_so)(const program_slot& slot)) {
  return std::any_of(what.slots.begin(), what.slots.end(), is_so);
}

const behaviour behaviours[] = {
    {"accumulation",
     [](const program& p) { return any_step(p, [](const program_step& step) { return step.passes.size() > 1; }); }},
    {"slots left out",
     [](const program& p) {
       const std::uint32_t all = (1U << p.slots.size()) - 1;
       return std::any_of(p.steps.begin(), p.steps.end(), [&](const program_step& step) {
         return std::any_of(step.passes.begin(), step.passes.end(), [&](const program_pass& pass) {
           return std::any_of(pass.used.begin(), pass.used.begin() + static_cast<std::ptrdiff_t>(p.ranks),
                              [&](std::uint32_t used) { return used != all; });
         });
       });
     }},
    {"several uses",
     [](const program& p) {
       return !p.recorded_uses && any_slot(p, [](const program_slot& slot) { return slot.uses > 1; });
     }},
    {"recorded uses",
     [](const program& p) {
       return p.recorded_uses && any_slot(p, [](const program_slot& slot) { return slot.uses > 1; });
     }},
    {"uneven inputs",
     [](const program& p) {
       const auto of_rank = p.data.begin();
       return std::any_of(of_rank, of_rank + static_cast<std::ptrdiff_t>(p.ranks),
                          [&](std::size_t steps) { return steps < p.steps.size(); });
     }},
    {"buffers", [](const program& p) { return !p.buffers.empty(); }},
    {"groups", [](const program& p) { return p.is_split(); }},
    {"new plans", [](const program& p) { return p.bucketing >= program_bucketing::ready_order && p.steps.size() > 2; }},
    {"waiting for slots", [](const program& p) { return p.waits; }},
    {"an exception",
     [](const program& p) {
       return any_step(p, [](const program_step& step) { return step.wrong == mishap::throws; });
     }},
    {"a use too many",
     [](const program& p) {
       return any_step(p, [](const program_step& step) { return step.wrong == mishap::repeats; });
     }},
    {"a step without end",
     [](const program& p) {
       return any_step(p, [](const program_step& step) { return step.wrong == mishap::drops; });
     }},
    {"an exception in on_reduced",
     [](const program& p) {
       return any_step(p, [](const program_step& step) { return step.wrong == mishap::reduces; });
     }},
    {"a window forgotten",
     [](const program& p) {
       return any_step(
           p, [](const program_step& step) { return step.wrong == mishap::forgets && step.passes.size() > 1; });
     }},
};

struct averaging_rule {
  program_average average;
  program_division divide;
  bool joined_left_out;
};

constexpr averaging_rule averaging_rules[] = {
    {program_average::mean, program_division::after, false},
    {program_average::mean, program_division::after, true},
    {program_average::mean, program_division::before, false},
    {program_average::mean, program_division::split, false},
    {program_average::sum, program_division::after, false},
    {program_average::weighted, program_division::after, false},
};

/// Behaviours, compressions, averages, overlaps, and rules for what is unused.
constexpr std::size_t factors[] = {std::size(behaviours), 5, std::size(averaging_rules), 2, 2};

program_rules rules_of(const choice_row& row, std::size_t ranks) {
  const averaging_rule& average = averaging_rules[row[2]];
  return {ranks,          static_cast<program_compression>(row[1]),
          row[3] == 1,    average.average,
          average.divide, average.joined_left_out,
          row[4] == 1};
}

/// The first random program with these rules in which that behaviour is.
program program_with(const behaviour& wanted, const program_rules& rules, std::uint64_t seed) {
  program found = random_program(seed, &rules);
  while (!wanted.is_in(found)) {
    found = random_program(++seed, &rules);
  }
  return found;
}

}  // namespace

TEST_CASE("differential: random programs do what the reference says") {
  rank_threads threads;
  if (const std::uint64_t only = environment_number("GRADWEAVE_TEST_SEED", 0); only != 0) {
    const testing::watchdog guard("differential, seed " + std::to_string(only));
    const std::string fault = fault_of_seed(only, threads);
    CHECK_MESSAGE(fault.empty(), fault);
    return;
  }
  const std::uint64_t seeds = environment_number("GRADWEAVE_TEST_SEEDS", is_brief() ? 500 : 10'000);
  int failures = 0;
  for (std::uint64_t first = 1; first <= seeds && failures < 5; first += 100) {
    const std::uint64_t end = std::min(first + 100, seeds + 1);
    const testing::watchdog guard("differential, seeds " + std::to_string(first) + " to " + std::to_string(end - 1));
    for (std::uint64_t seed = first; seed < end && failures < 5; ++seed) {
      if (const std::string fault = fault_of_seed(seed, threads); !fault.empty()) {
        ++failures;
        FAIL_CHECK(fault);
      }
    }
  }
}

TEST_CASE("differential: every behaviour with every compression, overlap, average and rule for what is unused") {
  rank_threads threads;
  const std::vector<choice_row> rows = is_full() ? combinations(factors) : pairwise(factors);
  for (const network over : {network::loopback, network::tcp}) {
    for (std::size_t ranks = 1; ranks <= program_ranks_max; ++ranks) {
      const std::string where = std::to_string(ranks) + " ranks over " + name_of(over);
      int failures = 0;
      for (std::size_t r = 0; r < rows.size() && failures < 2; ++r) {
        if (is_brief() && r % 8 != 2 * (ranks - 1) + (over == network::tcp ? 1 : 0)) {
          continue;
        }
        const testing::watchdog guard("behaviours with policies, row " + std::to_string(r) + ", " + where);
        const behaviour& wanted = behaviours[rows[r][0]];
        const program what = program_with(wanted, rules_of(rows[r], ranks), 1'000'000 * ranks + 1000 * r);
        if (const std::string fault = shrunk_fault(what, over, threads); !fault.empty()) {
          ++failures;
          FAIL_CHECK(wanted.name << ": " << fault);
        }
      }
    }
  }
}

TEST_CASE("pairwise: every pair of choices, in not many more rows than the two largest factors have pairs") {
  const std::vector<choice_row> rows = pairwise(factors);
  CHECK(rows.size() >= std::size(behaviours) * std::size(averaging_rules));
  CHECK(rows.size() <= std::size(behaviours) * std::size(averaging_rules) * 5 / 4);
  for (std::size_t a = 0; a < std::size(factors); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      std::set<std::pair<std::size_t, std::size_t>> seen;
      for (const choice_row& row : rows) {
        seen.emplace(row[a], row[b]);
      }
      CHECK(seen.size() == factors[a] * factors[b]);
    }
  }
  CHECK(combinations(factors).size() == factors[0] * factors[1] * factors[2] * factors[3] * factors[4]);
}

TEST_CASE("differential: a mistake is found, and the program that shows it is small") {
  const testing::watchdog guard("differential, mistakes");
  rank_threads threads;
  struct {
    mistake made;
    std::size_t ranks, steps, passes, slots;  // at most, of what is left
  } const cases[] = {{mistake::forgets_accumulation, 1, 1, 2, 1},
                     {mistake::counts_joined, 2, 1, 1, 1},
                     {mistake::loses_unused, 1, 1, 1, 1},
                     {mistake::averages_buffers, 2, 1, 1, 1},
                     {mistake::blames_another, 2, 1, 1, 1}};
  for (const auto& [made, ranks, steps, passes, slots] : cases) {
    const auto fails = [&, what = made](const program& candidate) {
      return !program_fault(candidate, network::loopback, threads, what).empty();
    };
    std::uint64_t seed = 1;
    while (seed <= 200 && !fails(random_program(seed))) {
      ++seed;
    }
    CAPTURE(seed);
    REQUIRE(seed <= 200);
    const program small = shrink(random_program(seed), fails);
    CAPTURE(to_text(small));
    CHECK(small.ranks <= ranks);
    CHECK(small.steps.size() <= steps);
    CHECK(small.steps[0].passes.size() <= passes);
    CHECK(small.slots.size() <= slots);
  }
}
