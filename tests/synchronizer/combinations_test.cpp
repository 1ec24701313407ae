// Behaviours together: pairs that a reader may doubt, and those that are refused. docs/reference/compatibility.md has the table.
#include <gradweave/gradweave.hpp>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stories.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("zero_fill and accumulation: what only accumulated passes used is sent, on each rank, and not once more") {
  const testing::watchdog guard("zero_fill and accumulation");
  for (const int size : {1, 2, 3}) {
    backend::run_loopback(size, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> everywhere(4), on_first(5), late(3);
      manifest gradients;
      const slot first = gradients.add_range("everywhere", everywhere.data(), everywhere.size());
      const slot second = gradients.add("on the first rank", on_first);
      const slot third = gradients.add("late", late);
      auto sync = synchronize(std::move(gradients), std::move(backend), unused::zero_fill);
      std::vector<std::uint32_t> told;
      sync.on_reduced([&](std::span<const slot> slots) {
        for (const slot each : slots) {
          told.push_back(each.index);
        }
      });
      for (int window = 0; window < 3; ++window) {
        everywhere.assign(4, static_cast<float>(2 * rank));
        on_first.assign(5, rank == 0 ? 6.0F : 0.0F);
        sync.accumulate([&](auto& step) {
          step.ready(first);
          if (rank == 0) {
            step.ready(second);
          }
        });
        told.clear();
        const auto only_late = [&](auto& step) {
          late.assign(3, 9);
          step.ready(third);
        };
        sync.step(only_late);
        CHECK(everywhere[3] == static_cast<float>(size - 1));
        CHECK(on_first[4] == 6 / static_cast<float>(size));
        CHECK(told.size() == 3);
        sync.step(only_late);  // nothing was accumulated before this one
        CHECK(everywhere[3] == static_cast<float>(size - 1));
        CHECK(told.size() == 4);
      }
    });
  }
}

TEST_CASE("join and accumulation: gradients that were accumulated and never sent are refused, and all are told") {
  const testing::watchdog guard("join and a window");
  const auto told = stories_of(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    const auto backward = [](auto& step) { step.ready(only); };
    sync.step(backward);
    if (rank == 1) {
      sync.accumulate(backward);
      CHECK_THROWS_WITH_AS(sync.join([] {}), doctest::Contains("end the last window with a step"), contract_violation);
    }
    sync.step(backward);
  });
  check_one_story(told, 3, "rank 1, step 1: join: this rank has accumulated gradients that no step has sent");
}

TEST_CASE("join and compare_every: without updates they are refused, and all are told; with updates they agree") {
  const testing::watchdog guard("join and compare_every");
  for (const bool updates : {false, true}) {
    const auto told = stories_of(2, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> value(2), gradient(2);
      manifest gradients;
      gradients.add("g", value, gradient);
      auto sync = synchronize(std::move(gradients), std::move(backend), parameters{.compare_every = 1});
      const auto update = [&] { value[0] -= gradient[0]; };
      for (int batch = 0; batch < 3 * rank; ++batch) {
        gradient.assign(2, 2);
        sync.step([](auto& step) { step.ready(only); });
        update();
      }
      if (updates) {
        sync.join(update);
        CHECK(value[0] == -3);
      } else if (rank == 0) {
        CHECK_THROWS_AS(sync.join(), contract_violation);
        static_cast<void>(sync.begin_step());  // throws the story
      }
    });
    if (updates) {
      CHECK(told.empty());
    } else {
      check_one_story(told, 2, "rank 0, step 0: join: without updates parameters differ until its end");
    }
  }
}

TEST_CASE("close and wait in a step's function: what they throw ends the step on all ranks, whatever the lane") {
  const testing::watchdog guard("close in a step's function");
  for (const bool waits : {false, true}) {
    for (const bool overlaps : {false, true}) {
      const auto told = stories_of(2, [&](backend::loopback backend) {
        const int rank = backend.rank();
        std::vector<float> first(4), second(4);
        manifest gradients;
        gradients.add("first", first);
        gradients.add("second", second);
        using any_overlap = one_of<overlap::blocking, overlap::progress_thread>;
        auto sync = synchronize(std::move(gradients), std::move(backend),
                                overlaps ? any_overlap(overlap::progress_thread{}) : any_overlap(overlap::blocking{}));
        sync.step([&](auto& step) {
          step.ready({0});
          if (rank == 0) {
            step.ready({1});
          }
          waits ? step.wait({0}) : step.close();
        });
      });
      check_one_story(told, 2, "rank 1, step 0");
    }
  }
}

TEST_CASE("on_reduced and join: an optimizer in it serves ranks with data and those without") {
  const testing::watchdog guard("on_reduced and join");
  backend::run_loopback(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> value(2), gradient(2);
    manifest gradients;
    gradients.add("g", value, gradient);
    auto sync = synchronize(std::move(gradients), std::move(backend), parameters{.compare_every = 1});
    sync.on_reduced([&](std::span<const slot>) { value[1] -= gradient[1]; });
    for (int batch = 0; batch < 1 + rank; ++batch) {
      gradient.assign(2, 6);
      sync.step([](auto& step) { step.ready(only); });
    }
    sync.join([] {});
    CHECK(value[1] == -(6 + 4 + 2));
  });
}

TEST_CASE("on_reduced: what asks for its own synchronizer in it is told so, on all ranks, and nobody waits for ever") {
  const testing::watchdog guard("on_reduced asks");
  for (const std::string asked : {"wait", "close", "begin", "compare", "on_reduced"}) {
    CAPTURE(asked);
    const auto told = stories_of(2, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> gradient(4);
      auto sync = synchronize_one(std::move(backend), gradient);
      std::function<void()> ask;
      std::atomic<bool> has_asked{rank == 0};
      sync.on_reduced([&](std::span<const slot>) {
        if (rank == 1) {
          try {
            ask();
          } catch (...) {
            has_asked = true;
            throw;
          }
        }
      });
      auto step = sync.begin_step();
      ask = [&] {
        if (asked == "wait") {
          step.wait(only);
        } else if (asked == "close") {
          step.close();
        } else if (asked == "begin") {
          static_cast<void>(sync.begin_accumulation());
        } else if (asked == "compare") {
          sync.compare_parameters();
        } else {
          sync.on_reduced(nullptr);
        }
      };
      step.ready(only);
      while (!has_asked) {
        std::this_thread::yield();
      }
      step.finish();
    });
    check_one_story(told, 2,
                    "in what on_reduced was given: gradweave: a function given to on_reduced, or a hook, asks");
  }
}

TEST_CASE("wait: for gradients whose uses are recorded in this step, that are weighted, or that accumulations left") {
  const testing::watchdog guard("wait and rules");
  backend::run_loopback(2, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> often(4), once(4);
    manifest gradients;
    const slot many = gradients.add("often", often);
    const slot one = gradients.add("once", once);
    auto sync = synchronize(std::move(gradients), std::move(backend), use_counts::recorded, averaging::weighted_mean,
                            unused::zero_fill);
    for (int s = 0; s < 3; ++s) {
      often.assign(4, static_cast<float>(4 * rank));
      once.assign(4, 1);
      if (s == 2) {
        sync.accumulate([&](auto& step) { step.ready(one); });
      }
      auto step = sync.begin_step({.samples = rank == 0 ? 1U : 3U});
      step.ready(many);
      step.ready(many);
      if (s != 2) {
        step.ready(one);
      }
      step.wait(many);
      CHECK(often[3] == 3);
      step.wait(one);
      CHECK(once[3] == 1);
      step.finish();
    }
  });
}

TEST_CASE("fp16: a sum, or one rank's weight, that is too large for it becomes infinite and is counted") {
  const testing::watchdog guard("fp16 and rules");
  for (const averaging rule : {averaging::mean, averaging::sum, averaging::weighted_mean}) {
    backend::run_loopback(2, [&](backend::loopback backend) {
      const std::uint64_t samples = rule == averaging::weighted_mean && backend.rank() == 1 ? 9 : 1;
      std::vector<float> gradient(4, 40000);
      auto sync = synchronize_one(std::move(backend), gradient, compression::fp16{}, rule);
      const step_result result = sync.step([](auto& step) { step.ready(only); }, {.samples = samples});
      CHECK(result.finite() == (rule == averaging::mean));
      CHECK(std::isinf(gradient[3]) == (rule != averaging::mean));
    });
  }
}

TEST_CASE("an open step: join, accumulations and what is asked for between steps are refused while it lasts") {
  const testing::watchdog guard("open step");
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    auto step = sync.begin_step();
    CHECK_THROWS_AS(sync.join([] {}), contract_violation);
    CHECK_THROWS_AS(static_cast<void>(sync.begin_accumulation()), contract_violation);
    CHECK_THROWS_AS(sync.compare_parameters(), contract_violation);
    CHECK_THROWS_AS(sync.on_reduced(nullptr), contract_violation);
    step.ready(only);
    step.finish();
    CHECK_THROWS_WITH_AS(static_cast<void>(sync.begin_step({.samples = 8})),
                         doctest::Contains("samples weigh ranks under averaging::weighted_mean only"),
                         contract_violation);
    sync.step([](auto& again) { again.ready(only); });
  });
}
