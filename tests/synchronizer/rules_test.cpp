// The rules of a synchronizer, one by one: what users rely on, and what they are told.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stories.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// What ranks with gradients of these values end with, all elements alike.
template <class Element, class... Policies>
std::vector<double> averages(std::vector<double> values, Policies... policies) {
  std::vector<double> ends(values.size());
  backend::run_loopback(static_cast<int>(values.size()), [&](backend::loopback backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    const auto stored = [&] {
      if constexpr (std::is_same_v<Element, float16>) {
        return to_float16(static_cast<float>(values[rank]));
      } else {
        return static_cast<Element>(values[rank]);
      }
    }();
    std::vector<Element> gradient(37, stored);
    auto sync = synchronize_one(std::move(backend), gradient, policies...);
    sync.step([&](auto& step) { step.ready(only); });
    if constexpr (std::is_same_v<Element, float16>) {
      ends[rank] = static_cast<double>(to_float32(gradient[36]));
    } else {
      ends[rank] = static_cast<double>(gradient[36]);
    }
  });
  return ends;
}

}  // namespace

TEST_CASE("averaging: a sum is no mean, whatever travels") {
  const testing::watchdog guard("sum");
  CHECK(averages<float>({1, 2, 6}, averaging::sum) == std::vector<double>{9, 9, 9});
  CHECK(averages<float>({1, 2, 6}, averaging::sum, compression::fp16{}) == std::vector<double>{9, 9, 9});
  CHECK(averages<float>({1, 2, 6}, averaging::mean) == std::vector<double>{3, 3, 3});
}

TEST_CASE(
    "averaging: two float16 ranks of 40000 do not overflow where the division comes after a sum in float32, or "
    "before") {
  const testing::watchdog guard("float16 overflow");
  const std::vector<double> large = {40000, 40000};
  CHECK(averages<float16>(large) == large);
  CHECK(averages<float16>(large, division::before) == large);
  CHECK(averages<float>(large, compression::fp16{}) == large);
  CHECK(averages<float16>(large, compression::per_hop_rounding{}, division::before) == large);
  CHECK(std::isinf(averages<float16>(large, averaging::sum)[0]));
  CHECK(averages<float16>(large, compression::per_hop_rounding{}, division::split)[0] ==
        doctest::Approx(40000).epsilon(2e-3));
}

TEST_CASE("averaging: float16 gradients of 6e-8 vanish where the division comes before") {
  const testing::watchdog guard("float16 underflow");
  const double smallest = std::ldexp(1, -24);
  CHECK(averages<float16>({smallest, smallest}) == std::vector<double>{smallest, smallest});
  CHECK(averages<float16>({smallest, smallest}, division::before) == std::vector<double>{0, 0});
  CHECK(averages<float16>({smallest, smallest}, division::split)[0] == smallest);
}

TEST_CASE("averaging: a mean over samples weighs ranks by theirs; with as many on each it has a mean's bits") {
  const testing::watchdog guard("weighted mean");
  backend::run_loopback(3, [](backend::loopback backend) {
    const auto rank = static_cast<std::uint64_t>(backend.rank());
    std::vector<float> gradient(5);
    auto sync = synchronize_one(std::move(backend), gradient, averaging::weighted_mean);
    const auto backward = [&](auto& step) {
      gradient.assign(5, static_cast<float>(rank) + 0.1F);
      step.ready(only);
    };
    sync.step(backward, {.samples = rank == 2 ? 30U : 5U});
    CHECK(static_cast<double>(gradient[4]) == doctest::Approx((0.1 * 5 + 1.1 * 5 + 2.1 * 30) / 40));
    sync.step(backward, {.samples = 7});
    CHECK(gradient[4] == (0.1F + 1.1F + 2.1F) / 3);
    sync.step(backward, {.samples = 0});
    CHECK(gradient[4] == 0);
    CHECK_THROWS_AS(static_cast<void>(sync.begin_step({.samples = samples_max + 1})), contract_violation);
  });
}

TEST_CASE(
    "unused: under zero_fill a gradient that no rank used keeps its value, and one that some used is averaged with "
    "zeros") {
  const testing::watchdog guard("zero_fill");
  backend::run_loopback(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> all(4, 3), some(4, 6), none(4, 8);
    manifest gradients;
    const slot all_slot = gradients.add("all", all);
    const slot some_slot = gradients.add("some", some);
    gradients.add_range("none", none.data(), none.size());
    auto sync = synchronize(std::move(gradients), std::move(backend), unused::zero_fill);
    const std::uint64_t sent = sync.statistics().bytes_on_wire;
    sync.step([&](auto& step) {
      step.ready(all_slot);
      if (rank == 1) {
        step.ready(some_slot);
      }
    });
    CHECK(all[3] == 3);
    CHECK(some[3] == 2);
    CHECK(none[3] == 8);
    const std::uint64_t with_bitmap = sync.statistics().bytes_on_wire - sent;
    sync.step([&](auto& step) { step.ready(all_slot); });
    CHECK(some[3] == 2);
    CHECK(none[3] == 8);
    CHECK(sync.statistics().bytes_on_wire - sent - with_bitmap < with_bitmap);  // all ranks used the same: no bitmap
  });
}

TEST_CASE("unused: strict is the default, and names slot and bucket in the same step, on all ranks") {
  const testing::watchdog guard("strict");
  const auto told = stories_of(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> a(4), b(4);
    manifest gradients;
    const slot first = gradients.add("a", a);
    const slot second = gradients.add("b", b);
    auto sync = synchronize(std::move(gradients), std::move(backend));
    sync.step([&](auto& step) {
      step.ready(first);
      if (rank != 1) {
        step.ready(second);
      }
    });
  });
  check_one_story(told, 3, "rank 1, step 0, bucket 0 (slots 'b')");
}

TEST_CASE("uses: a gradient travels after its last use, one too many is an error at the call, one too few names it") {
  const testing::watchdog guard("uses");
  const auto told = stories_of(2, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> shared(4);
    manifest gradients;
    gradients.add("shared", shared, uses{2});
    auto sync = synchronize(std::move(gradients), std::move(backend));
    sync.step([&](auto& step) {
      shared.assign(4, 1);
      step.ready(only);
      shared.assign(4, static_cast<float>(3 + 2 * rank));
      step.ready(only);
      CHECK_THROWS_WITH_AS(
          step.ready(only),
          doctest::Contains("slot 'shared' is ready more than 2 times in one step; was backward called twice?"),
          contract_violation);
    });
    CHECK(shared[0] == 4);
    sync.step([&](auto& step) {
      step.ready(only);
      if (rank == 0) {
        step.ready(only);
      }
    });
  });
  check_one_story(told, 2, "'shared' was so 1 of 2 times");
}

TEST_CASE("uses: threads that each compute a part of a gradient use it without any order among them") {
  const testing::watchdog guard("uses by threads");
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> shared(1000);
    manifest gradients;
    gradients.add("shared", shared, uses{2});
    auto sync = synchronize(std::move(gradients), std::move(backend));
    for (int s = 0; s < 50; ++s) {
      sync.step([&](auto& step) {
        const auto compute = [&](std::size_t begin) {
          std::fill_n(shared.begin() + static_cast<std::ptrdiff_t>(begin), 500, static_cast<float>(begin + 1));
          step.ready(only);
        };
        std::thread first(compute, 0);
        compute(500);
        first.join();
      });
      REQUIRE(shared[499] == 1);
      REQUIRE(shared[500] == 501);
    }
  });
}

TEST_CASE("uses: other counts on another rank are told by name before the first step") {
  const testing::watchdog guard("uses differ");
  const auto told = stories_of(2, [](backend::loopback backend) {
    std::vector<float> shared(4);
    manifest gradients;
    gradients.add("shared", shared, uses{static_cast<std::uint32_t>(1 + backend.rank())});
    static_cast<void>(synchronize(std::move(gradients), std::move(backend)));
  });
  check_one_story(told, 2, "rank 1 has 'shared' float32 [4] used 2 times a step");
}

TEST_CASE("uses: recorded in the first step, also an accumulated one; a count that differs later names the slot") {
  const testing::watchdog guard("recorded uses");
  for (const bool accumulate_first : {false, true}) {
    const auto told = stories_of(2, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> often(4), once(4);
      manifest gradients;
      const slot many = gradients.add("often", often);
      const slot one = gradients.add("once", once);
      auto sync = synchronize(std::move(gradients), std::move(backend), use_counts::recorded);
      const auto backward = [&](auto& step) {
        often.assign(4, static_cast<float>(rank));
        once.assign(4, static_cast<float>(4 * rank));
        for (int use = 0; use < 3; ++use) {
          step.ready(many);
        }
        step.ready(one);
      };
      if (accumulate_first) {
        sync.accumulate(backward);
        CHECK(once[0] == static_cast<float>(4 * rank));
      }
      for (int s = 0; s < 3; ++s) {
        sync.step(backward);
        CHECK(often[3] == 0.5F);
        CHECK(once[3] == 2);
      }
      sync.step([&](auto& step) {
        step.ready(many);
        step.ready(one);
        if (rank == 0) {
          step.ready(many);
          step.ready(many);
          CHECK_THROWS_AS(step.ready(many), contract_violation);
        }
      });
    });
    check_one_story(told, 2, "'often' was so 1 of 3 times");
  }
}

TEST_CASE("accumulation: needs no other rank, leaves gradients alone, and survives a new plan") {
  const testing::watchdog guard("accumulation");
  std::barrier by_turns(2);
  backend::run_loopback(2, [&](backend::loopback backend) {
    const int backend_rank = backend.rank();
    const auto rank = static_cast<float>(backend_rank);
    std::vector<std::vector<float>> parts(3, std::vector<float>(50));
    manifest gradients;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      gradients.add_range("g" + std::to_string(i), parts[i].data(), parts[i].size());
    }
    auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::ready_order{{200, 200}});
    const auto backward = [&](auto& step) {
      for (std::uint32_t i = 0; i < 3; ++i) {  // in registration order: not what was planned for
        for (float& each : parts[i]) {
          each += rank + 1;
        }
        step.ready({i});
      }
    };
    for (int s = 0; s < 3; ++s) {
      for (auto& part : parts) {
        part.assign(50, 0);
      }
      for (int turn = 0; turn < 2; ++turn) {  // each while the other does nothing
        if (backend_rank == turn) {
          sync.accumulate(backward);
          sync.accumulate(backward);
        }
        by_turns.arrive_and_wait();
      }
      CHECK(parts[2][49] == 2 * (rank + 1));
      sync.step(backward);
      CHECK(parts[0][0] == 4.5F);
      CHECK(parts[2][49] == 4.5F);
    }
    CHECK(sync.statistics().steps == 3);
  });
}

TEST_CASE("accumulation: windows of different length are told in the next step, on all ranks") {
  const testing::watchdog guard("windows");
  const auto told = stories_of(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    const auto backward = [&](auto& step) { step.ready(only); };
    for (int window = 0; window < (rank == 2 ? 1 : 2); ++window) {
      sync.accumulate(backward);
    }
    sync.step(backward);
  });
  check_one_story(told, 3, "different numbers of accumulated steps before it: 2 on rank 0, 1 on rank 2");
}

TEST_CASE("loss scale: one that differs between ranks is told on all of them, and none is no number") {
  const testing::watchdog guard("loss scale");
  const auto told = stories_of(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    const auto backward = [&](auto& step) { step.ready(only); };
    sync.step(backward, {.loss_scale = 1024});
    CHECK_THROWS_AS(sync.step(backward, {.loss_scale = 0}), contract_violation);
    sync.step(backward, {.loss_scale = rank == 1 ? 512.0F : 1024.0F});
  });
  check_one_story(told, 3, "different loss scales: 1024.000000 on rank 0, 512.000000 on rank 1");
}

TEST_CASE("accumulation: a missing gradient, an exception or a forgotten end is told on all ranks") {
  const testing::watchdog guard("failed accumulation");
  for (const std::string fault : {"missing", "exception", "forgotten"}) {
    CAPTURE(fault);
    const auto told = stories_of(2, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> gradient(4);
      auto sync = synchronize_one(std::move(backend), gradient);
      const auto backward = [&](auto& step) { step.ready(only); };
      if (rank == 1) {
        if (fault == "missing") {
          sync.accumulate([](auto&) {});
        } else if (fault == "exception") {
          CHECK_THROWS_AS(sync.accumulate([](auto&) { throw std::runtime_error("out of paper"); }), std::runtime_error);
        } else {
          static_cast<void>(sync.begin_accumulation());
        }
      }
      sync.step(backward);
    });
    check_one_story(told, 2,
                    fault == "missing"     ? "(slots 'g')"
                    : fault == "exception" ? "out of paper"
                                           : "given up before its end");
  }
}

TEST_CASE("rules: those that contradict each other, or that a rank chooses alone, are refused on all ranks") {
  const testing::watchdog guard("rules");
  std::vector<float> gradient(4);
  manifest gradients;
  gradients.add("g", gradient);
  std::vector<backend::loopback> alone = backend::make_loopback(1);
  CHECK_THROWS_AS(
      static_cast<void>(synchronize(std::move(gradients), std::move(alone[0]), averaging::sum, division::before)),
      contract_violation);
  const auto told = stories_of(2, [](backend::loopback backend) {
    const auto rule = backend.rank() == 0 ? unused::strict : unused::zero_fill;
    std::vector<float> own(4);
    manifest gradients_of_rank;
    gradients_of_rank.add("g", own);
    static_cast<void>(synchronize(std::move(gradients_of_rank), std::move(backend), rule));
  });
  check_one_story(told, 2, "zero_fill");
}

TEST_CASE("parameters: begin as those of the chosen rank; the first that diverges is named on all ranks") {
  const testing::watchdog guard("parameters");
  for (const bool asked : {false, true}) {
    const auto told = stories_of(3, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> first(5, static_cast<float>(rank)), second(3, static_cast<float>(-rank)), gradient(5),
          other(3);
      manifest gradients;
      const slot one = gradients.add("first", first, gradient);
      const slot two = gradients.add("second", second, other);
      auto sync = synchronize(std::move(gradients), std::move(backend),
                              parameters{.broadcast_from = 2, .compare_every = asked ? 0U : 2U});
      CHECK(first[4] == 2);
      CHECK(second[2] == -2);
      const auto backward = [&](auto& step) {
        step.ready(one);
        step.ready(two);
      };
      sync.compare_parameters();
      sync.step(backward);
      sync.step(backward);
      second[1] += rank == 1 ? 1e-6F : 0;
      if (asked) {
        sync.compare_parameters();
      }
      sync.step(backward);
      sync.step(backward);
    });
    check_one_story(told, 3, "(slots 'second'): the parameter of slot 'second' differs between rank 0 and rank 1");
  }
}

TEST_CASE("parameters: a rank that there is not is refused on all ranks") {
  const testing::watchdog guard("parameters from nowhere");
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> value(5), gradient(5);
    manifest gradients;
    gradients.add("g", value, gradient);
    CHECK_THROWS_WITH_AS(
        static_cast<void>(synchronize(std::move(gradients), std::move(backend), parameters{.broadcast_from = 2})),
        doctest::Contains("parameters are to come from rank 2; there are ranks 0 to 1"), contract_violation);
  });
}

namespace {

/// Ranks with `batches[rank]` steps of data each; they update a parameter by each gradient, which is 12 on every rank.
/// What the parameters are at the end.
template <class Join, class... Rules>
std::vector<float> train_unevenly(std::vector<int> batches, Join join, Rules... rules) {
  std::vector<float> ends(batches.size());
  backend::run_loopback(static_cast<int>(batches.size()), [&](backend::loopback backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    std::vector<float> value(3, static_cast<float>(rank)), gradient(3), rarely_used(2), never(2, 5);
    manifest gradients;
    gradients.add("g", value, gradient);
    gradients.add("never", never);
    const slot rare = gradients.add("rare", rarely_used);
    auto sync = synchronize(std::move(gradients), std::move(backend), rules..., unused::zero_fill);
    const auto update = [&] {
      for (float& each : value) {
        each -= gradient[0] + 100 * rarely_used[1];
      }
    };
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (int batch = 0; batch < batches[rank]; ++batch) {
        rarely_used.assign(2, 0);
        sync.step([&](auto& step) {
          gradient.assign(3, 12);
          step.ready(only);
          if (rank == 0 && batch == 2) {
            rarely_used.assign(2, 6);
            step.ready(rare);
          }
        });
        update();
      }
      rarely_used.assign(2, 0);
      join(sync, [&] {
        update();
        rarely_used.assign(2, 0);
      });
    }
    CHECK(never[1] == 5);
    ends[rank] = value[2];
  });
  return ends;
}

}  // namespace

TEST_CASE("join: ranks that have run out take part with zeros, update alike, and end with the same parameters") {
  const testing::watchdog guard("join");
  const auto updating = [](auto& sync, auto after_step) { sync.join(after_step); };
  // Averages over all: steps with 3, 2 and 1 ranks weigh 12, 8 and 4; the rare gradient is 6 / 3 in one of them.
  CHECK(train_unevenly({4, 1, 2}, updating) == std::vector<float>(3, -2 * (12 + 8 + 4 + 4 + 200)));
  // Over those with data all steps weigh 12, and the rare gradient is 6.
  CHECK(train_unevenly({4, 1, 2}, updating, joined_ranks::left_out) == std::vector<float>(3, -2 * (4 * 12 + 600)));
  CHECK(train_unevenly({4, 4}, updating) == std::vector<float>(2, -2 * (4 * 12 + 300)));
  CHECK(train_unevenly({3}, updating) == std::vector<float>(1, -2 * (3 * 12 + 600)));
}

TEST_CASE("join: without updates the parameters of a rank that trained to the last are taken over") {
  const testing::watchdog guard("join without updates");
  const auto plain = [](auto& sync, auto) { sync.join(); };
  CHECK(train_unevenly({1, 2, 2}, plain, joined_ranks::left_out) == std::vector<float>(3, -2 * 2 * 12));
}

TEST_CASE("join: a strict rank's missing gradient, or an exception after a step, is told to those that have run out") {
  const testing::watchdog guard("join and failures");
  for (const bool throws_after_step : {false, true}) {
    const auto told = stories_of(3, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> gradient(3);
      auto sync = synchronize_one(std::move(backend), gradient);
      const auto backward = [&](auto& step) { step.ready(only); };
      sync.step(backward);
      if (rank != 0) {
        CHECK_THROWS_AS(sync.join([&] {
          if (throws_after_step && rank == 2) {
            throw std::runtime_error("out of paper");
          }
        }),
                        std::exception);
        static_cast<void>(sync.begin_step());  // throws the story
      }
      sync.step(backward);
      if (throws_after_step) {
        sync.step(backward);
      }
      sync.step([](auto&) {});
    });
    check_one_story(told, 3,
                    throws_after_step ? "rank 2, step 2: an exception in join: out of paper" : "rank 0, step 2");
  }
}

TEST_CASE("join: ranks that accumulate differently from those with data are no fault of those without") {
  const testing::watchdog guard("join and accumulation");
  backend::run_loopback(2, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<double> gradient(3);
    manifest gradients;
    gradients.add("g", gradient);
    auto sync =
        synchronize(std::move(gradients), std::move(backend), use_counts::recorded, bucketing::ready_order{{8, 8}});
    const auto backward = [&](auto& step) {
      gradient.assign(3, 4);
      step.ready(only);
    };
    for (int batch = 0; batch < 3 * rank; ++batch) {
      sync.accumulate(backward);
      sync.step(backward);
      CHECK(gradient[0] == 2);
    }
    int joined = 0;
    sync.join([&] {
      CHECK(gradient[0] == 2);
      ++joined;
    });
    CHECK(joined == 3 * (1 - rank));
  });
}

namespace {

/// What a rank's buffers hold after a step of its own: as if it had run a forward pass.
struct statistics_of {
  std::vector<std::int64_t> count = {0, 0, 0};
  std::vector<float> own = {0};
  std::vector<double> mean = {0, 0};
  std::vector<float16> half = {float16{}};

  void add_to(manifest& gradients, int from) {
    gradients.add_buffer("count", count);
    gradients.add_buffer("own", own, buffer_rule::broadcast(from));
    gradients.add_buffer("mean", mean, buffer_rule::average());
    gradients.add_buffer("half", half, buffer_rule::average());
  }
  void run_forward(int rank, int step) {
    count.assign(3, 100 * step + rank);
    own.assign(1, static_cast<float>(1000 * step + rank));
    mean.assign(2, std::pow(4, rank) / 8 + step);
    half.assign(1, to_float16(40000.0F));  // the sum of two is no float16
  }
  void check(std::int64_t counted, float of_own, double averaged) const {
    CHECK(count == std::vector<std::int64_t>(3, counted));
    CHECK(own[0] == of_own);
    CHECK(mean == std::vector<double>(2, averaged));
  }
};

}  // namespace

TEST_CASE(
    "buffers: are one rank's, or averages, at the start and after each step, and a rank's own while it accumulates") {
  const testing::watchdog guard("buffers");
  for (const int size : {1, 2, 3, 4}) {
    backend::run_loopback(size, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<float> gradient(4);
      statistics_of buffers;
      buffers.run_forward(rank, 0);
      manifest gradients;
      gradients.add("g", gradient);
      buffers.add_to(gradients, size - 1);
      auto sync = synchronize(std::move(gradients), std::move(backend), unused::zero_fill);
      buffers.check(0, 0, 0.125);
      const auto forward_and_backward = [&](int s) {
        return [&buffers, rank, s](auto& step) {
          buffers.run_forward(rank, s);
          step.ready(only);
        };
      };
      for (int s = 1; s < 4; ++s) {
        sync.accumulate(forward_and_backward(10 + s));
        buffers.check(100 * (10 + s) + rank, static_cast<float>(1000 * (10 + s) + rank),
                      std::pow(4, rank) / 8 + 10 + s);
        sync.step(forward_and_backward(s));
        buffers.check(100 * s, static_cast<float>(1000 * s + size - 1), (std::pow(4, size) - 1) / 3 / size / 8 + s);
        CHECK(to_float32(buffers.half[0]) == 40000);
      }
    });
  }
}

TEST_CASE("buffers: ranks that have run out are neither a source nor in an average, and take what the others have") {
  const testing::watchdog guard("buffers and join");
  backend::run_loopback(3, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    statistics_of buffers;
    manifest gradients;
    gradients.add("g", gradient);
    buffers.add_to(gradients, 2);
    auto sync = synchronize(std::move(gradients), std::move(backend));
    int s = 1;
    const auto check = [&] {
      // Rank 0 has data for one step, rank 1 for three, rank 2 for two.
      buffers.check(100 * s + (s == 1 ? 0 : 1), static_cast<float>(1000 * s + (s == 3 ? 1 : 2)),
                    s + (s == 1   ? 21.0 / 24
                         : s == 2 ? 20.0 / 16
                                  : 0.5));
      ++s;
    };
    while (s <= (rank == 0 ? 1 : 4 - rank)) {
      sync.step([&](auto& step) {
        buffers.run_forward(rank, s);
        step.ready(only);
      });
      check();
    }
    sync.join(check);
    CHECK(s == 4);
    sync.join();  // nobody has anything
    buffers.check(301, 3001, 3.5);
  });
}

TEST_CASE("buffers: a step that fails leaves them alone; what differs between ranks is named before the first step") {
  const testing::watchdog guard("buffers and failures");
  check_one_story(stories_of(2,
                             [](backend::loopback backend) {
                               const int rank = backend.rank();
                               std::vector<float> gradient(4);
                               statistics_of buffers;
                               manifest gradients;
                               gradients.add("g", gradient);
                               buffers.add_to(gradients, 0);
                               auto sync = synchronize(std::move(gradients), std::move(backend));
                               try {
                                 sync.step([&](auto& step) {
                                   buffers.run_forward(rank, 1);
                                   if (rank == 0) {
                                     step.ready(only);
                                   }
                                 });
                               } catch (...) {
                                 buffers.check(100 + rank, static_cast<float>(1000 + rank), std::pow(4, rank) / 8 + 1);
                                 throw;
                               }
                             }),
                  2, "rank 1, step 0, bucket 0 (slots 'g')");
  check_one_story(stories_of(2,
                             [](backend::loopback backend) {
                               const int rank = backend.rank();
                               std::vector<float> gradient(4);
                               statistics_of buffers;
                               manifest gradients;
                               gradients.add("g", gradient);
                               buffers.add_to(gradients, rank);
                               static_cast<void>(synchronize(std::move(gradients), std::move(backend)));
                             }),
                  2, "(slots 'own'): ranks disagree on buffer 1: rank 0 has 'own' float32 [1] from rank 0, rank 1 has");
}

TEST_CASE("buffers: no average of integers, no second of a name, and no source that there is not") {
  std::vector<std::int64_t> count(2);
  std::vector<float> gradient(2);
  manifest gradients;
  gradients.add("g", gradient);
  CHECK_THROWS_WITH_AS(gradients.add_buffer("count", count, buffer_rule::average()),
                       doctest::Contains("buffer 'count' has element kind int64, and only floating-point ones can be "
                                         "averaged; give it buffer_rule::broadcast()"),
                       contract_violation);
  CHECK_THROWS_WITH_AS(gradients.add_buffer("g", count), doctest::Contains("the name 'g' is taken"),
                       contract_violation);
  CHECK_THROWS_WITH_AS(gradients.add_buffer("", count), doctest::Contains("buffer 0 has an empty name"),
                       contract_violation);
  gradients.add_buffer("count", count, buffer_rule::broadcast(1));
  CHECK_THROWS_WITH_AS(static_cast<void>(synchronize(std::move(gradients), std::move(backend::make_loopback(1)[0]))),
                       doctest::Contains("buffer 'count' is to come from rank 1; there are ranks 0 to 0"),
                       contract_violation);
}

TEST_CASE("wait: returns once a gradient is the average, while another has not even been computed on some rank") {
  const testing::watchdog guard("wait");
  std::atomic<int> steps_waited{0};
  backend::run_loopback(2, [&](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> early(4), late(4);
    manifest gradients;
    const slot last = gradients.add("late", late);
    const slot first = gradients.add("early", early);  // registered last: reduced first
    auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::per_tensor{});
    for (int s = 0; s < 20; ++s) {
      early.assign(4, static_cast<float>(2 * rank));
      late.assign(4, static_cast<float>(4 * rank));
      auto step = sync.begin_step();
      step.ready(first);
      if (rank == 0) {
        step.ready(last);
        step.wait(first);
        CHECK(early[3] == 1);
        ++steps_waited;
        CHECK_THROWS_AS(step.ready(first), contract_violation);
      } else {
        while (steps_waited <= s) {
          std::this_thread::yield();
        }
        step.ready(last);
        step.close();
      }
      step.wait(last);
      CHECK(late[3] == 2);
      CHECK(step.finish().step == static_cast<std::uint64_t>(s));
    }
  });
}

TEST_CASE("wait: with a lane that has no thread, on one rank, and for what was not used") {
  const testing::watchdog guard("wait without a thread");
  for (const int size : {1, 2}) {
    backend::run_loopback(size, [&](backend::loopback backend) {
      std::vector<float> used(4, static_cast<float>(backend.rank())), not_used(4);
      manifest gradients;
      const slot one = gradients.add("used", used);
      const slot other = gradients.add("not used", not_used);
      auto sync = synchronize(std::move(gradients), std::move(backend), overlap::blocking{}, unused::zero_fill);
      auto step = sync.begin_step();
      step.ready(one);
      step.wait(one);
      CHECK(used[0] == (size == 1 ? 0 : 0.5F));
      CHECK_THROWS_WITH_AS(step.wait(other), doctest::Contains("not used in this step"), contract_violation);
      step.finish();
    });
  }
}

TEST_CASE("wait: a rank that fails is told to those that wait") {
  const testing::watchdog guard("wait and failures");
  const auto told = stories_of(2, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    auto step = sync.begin_step();
    if (rank == 0) {
      step.ready(only);
      step.wait(only);
    } else {
      step.close();
    }
  });
  check_one_story(told, 2, "rank 1, step 0, bucket 0 (slots 'g')");
}

TEST_CASE("on_reduced: tells of each bucket in the plan's order, on every rank, when its gradients are averages") {
  const testing::watchdog guard("on_reduced");
  for (const int size : {1, 2, 3}) {
    backend::run_loopback(size, [&](backend::loopback backend) {
      const int rank = backend.rank();
      std::vector<std::vector<float>> parts(5, std::vector<float>(4));
      manifest gradients;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        gradients.add("g" + std::to_string(i), parts[i]);
      }
      auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::per_tensor{}, unused::zero_fill);
      std::vector<std::uint32_t> told;
      sync.on_reduced([&](std::span<const slot> slots) {
        for (const slot which : slots) {
          told.push_back(which.index);
          CHECK(parts[which.index][3] == static_cast<float>(which.index == 2 ? 6.0 / size : 3));
        }
      });
      for (int s = 0; s < 5; ++s) {
        told.clear();
        sync.step([&](auto& step) {
          for (std::uint32_t i = 0; i < 4; ++i) {  // the last is used by nobody
            parts[i].assign(4, i == 2 ? 6.0F : 3.0F);
            if (i != 2 || rank == 0) {
              step.ready({i});
            }
          }
        });
        // What this rank left out and another did not comes at the end.
        CHECK(told == (rank == 0 ? std::vector<std::uint32_t>{3, 2, 1, 0} : std::vector<std::uint32_t>{3, 1, 0, 2}));
      }
      sync.on_reduced(nullptr);
      told.clear();
      sync.step([&](auto& step) { step.ready({0}); });
      CHECK(told.empty());
    });
  }
}

TEST_CASE("on_reduced: what it throws fails the step on all ranks") {
  const testing::watchdog guard("on_reduced throws");
  const auto told = stories_of(2, [](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(4);
    auto sync = synchronize_one(std::move(backend), gradient);
    sync.on_reduced([&](std::span<const slot>) {
      if (rank == 1) {
        throw std::runtime_error("out of paper");
      }
    });
    sync.step([&](auto& step) { step.ready(only); });
  });
  check_one_story(told, 2,
                  "rank 1, step 0, bucket 0 (slots 'g'): an exception in what on_reduced was given: out of paper");
}
