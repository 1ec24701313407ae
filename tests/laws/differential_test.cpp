// Laws 1, 2, 3 and 6 under every rule: seeded random programs against a reference in double precision that shares no code
// with the library. A program that fails is made as small as it can be, and printed.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/program.hpp"
#include "tests/support/program_run.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/shrinking.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// Connections take longer to make than the programs run: few are over them.
network network_of(std::uint64_t seed) {
  return seed % 100 == 0 ? network::tcp : seed % 100 == 50 ? network::shared_memory : network::loopback;
}

/// Empty where all is as the reference says, else what is not, with the smallest program that shows something.
std::string fault_of_seed(std::uint64_t seed, rank_threads& threads) {
  const program whole = random_program(seed);
  const network over = network_of(seed);
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
  return "seed " + std::to_string(seed) + " over " + name_of(over) + ": " + fault +
         "; run it alone with GRADWEAVE_TEST_SEED=" + std::to_string(seed) + "\n" + to_text(whole) +
         "shrunk to: " + to_text(small) + "where " + (last.empty() ? fault : last);
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
