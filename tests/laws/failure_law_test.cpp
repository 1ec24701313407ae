// Law 2: if any rank fails in step s, every survivor throws in s or at its next call, and all tell one story.
#include <gradweave/gradweave.hpp>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

enum class fault { throws, abandons, forgets, repeats, leaves };

struct story {
  std::optional<failure> cause;  // of a sync_error
  std::string other;             // what() of anything else
  std::uint64_t step = 0;        // the step in which it was thrown
};

constexpr std::uint64_t steps = 4;

story run_rank(any_backend backend, const policy_choice& choice, const std::vector<trial_slot>& slots, int culprit,
               std::uint64_t when, fault what, std::size_t ready_before) {
  const int rank = backend.rank();
  trial_model model(slots);
  story told;
  try {
    auto sync = synchronize_trial(model, std::move(backend), choice);
    for (told.step = 0; told.step < steps; ++told.step) {
      const bool faulty = rank == culprit && told.step == when;
      if (faulty && what == fault::leaves) {
        told.other = "left";
        return told;
      }
      if (faulty && what == fault::abandons) {
        auto step = sync.begin_step();
        for (std::uint32_t which = 0; which < ready_before; ++which) {
          step.ready({which});
        }
        told.other = "abandoned";
        return told;
      }
      sync.step([&](auto& step) {
        for (std::uint32_t which = 0; which < slots.size(); ++which) {
          if (faulty && which == ready_before) {
            if (what == fault::throws) {
              throw std::runtime_error("the data is bad");
            }
            if (what == fault::forgets) {
              continue;
            }
            step.ready({which});
          }
          step.ready({which});
        }
      });
    }
    // A rank may have ended the last step well before another failed: its next call is told.
  } catch (const sync_error& error) {
    told.cause = error.cause();
  } catch (const std::exception& error) {
    told.other = error.what();
  }
  return told;
}

void check(network over, int size, const policy_choice& choice, int culprit, std::uint64_t when, fault what,
           std::size_t ready_before) {
  const auto slots = random_slots(11, 10);
  std::vector<story> stories(static_cast<std::size_t>(size));
  run_ranks(over, size,
            [&](any_backend backend) {
              const auto rank = static_cast<std::size_t>(backend.rank());
              stories[rank] = run_rank(std::move(backend), choice, slots, culprit, when, what, ready_before);
            },
            {.timeout = 20s});
  std::optional<std::string> sentence;
  for (int rank = 0; rank < size; ++rank) {
    const story& told = stories[static_cast<std::size_t>(rank)];
    CAPTURE(name_of(over));
    CAPTURE(size);
    CAPTURE(choice.name);
    CAPTURE(rank);
    CAPTURE(culprit);
    CAPTURE(when);
    CAPTURE(static_cast<int>(what));
    if (rank == culprit && what != fault::forgets) {
      CHECK_FALSE(told.other.empty());
      continue;
    }
    REQUIRE(told.cause.has_value());
    CHECK(told.step == when);
    CHECK(told.cause->rank == culprit);
    CHECK(told.cause->step == static_cast<std::int64_t>(when));
    const errc expected = what == fault::leaves    ? errc::peer_lost
                          : what == fault::forgets ? errc::gradient_missing
                                                   : errc::aborted;
    CHECK(told.cause->code == expected);
    if (what == fault::throws) {
      CHECK(told.cause->detail.find("the data is bad") != std::string::npos);
    }
    if (what == fault::forgets) {
      CHECK(told.cause->slots == std::vector<std::string>{"slot" + std::to_string(ready_before)});
      CHECK(told.cause->bucket >= 0);
    }
    if (what == fault::repeats) {
      CHECK(told.cause->detail.find("second time") != std::string::npos);
    }
    sentence = sentence.value_or(to_string(*told.cause));
    CHECK(to_string(*told.cause) == *sentence);
  }
}

}  // namespace

TEST_CASE("law 2: a failing rank is named on every rank, in the same step, in the same words") {
  const testing::watchdog guard("law 2");
  for (const policy_choice& choice : policy_choices()) {
    for (const int size : tests::world_sizes({2, 3, 4})) {
      const network over = network::loopback;
      for (const fault what : {fault::throws, fault::abandons, fault::forgets, fault::repeats, fault::leaves}) {
        check(over, size, choice, size - 1, 0, what, 0);
        check(over, size, choice, 0, 2, what, 5);
        check(over, size, choice, size / 2, 1, what, 9);
      }
    }
  }
}

TEST_CASE("law 2: the same over TCP") {
  const testing::watchdog guard("law 2 over TCP");
  const auto choices = policy_choices();
  for (const int size : tests::world_sizes({2, 3, 4})) {
    for (const fault what : {fault::throws, fault::abandons, fault::forgets, fault::repeats, fault::leaves}) {
      const std::size_t one = static_cast<std::size_t>(what) + static_cast<std::size_t>(size);
      check(network::tcp, size, choices[one % choices.size()], size - 1, 0, what, 0);
      check(network::tcp, size, choices[(one + 5) % choices.size()], 0, 2, what, 5);
    }
  }
}

TEST_CASE("law 2: after a failure every further call throws the same story") {
  const testing::watchdog guard("law 2, afterwards");
  backend::run_loopback(1, [](backend::loopback backend) {
    std::vector<float> gradient(3);
    manifest gradients;
    gradients.add("w", gradient);
    auto sync = synchronize(std::move(gradients), std::move(backend));
    std::string first;
    try {
      sync.step([](auto&) {});
    } catch (const sync_error& error) {
      first = error.what();
    }
    CHECK(first.find("'w'") != std::string::npos);
    for (int i = 0; i < 2; ++i) {
      try {
        (void)sync.begin_step();
        FAIL("begin_step succeeded");
      } catch (const sync_error& error) {
        CHECK(error.what() == first);
      }
    }
  });
}
