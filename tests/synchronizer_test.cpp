#include <gradweave/synchronizer.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/grid.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

using any_bucketing = one_of<bucketing::fixed_bytes, bucketing::per_tensor>;

/// Seals on `size` ranks what `make(rank)` returns, and gives back the one failure that all of them threw.
failure seal_failure(
    int size, const std::function<manifest(int)>& make,
    const std::function<any_bucketing(int)>& bucketing = [](int) { return bucketing::fixed_bytes{}; }) {
  std::mutex telling;
  std::vector<failure> causes;
  backend::run_loopback(size,
                        [&](backend::loopback backend) {
                          const int rank = backend.rank();
                          try {
                            auto sync = synchronize(make(rank), std::move(backend), bucketing(rank));
                          } catch (const sync_error& error) {
                            const std::lock_guard lock(telling);
                            causes.push_back(error.cause());
                          }
                        },
                        {.timeout = 20s});
  REQUIRE(causes.size() == static_cast<std::size_t>(size));
  for (const failure& cause : causes) {
    CHECK(to_string(cause) == to_string(causes.front()));
    CHECK(cause.code == causes.front().code);
  }
  return causes.front();
}

std::vector<float> four(4), five(5), six(6);
std::vector<double> wide(4);

}  // namespace

TEST_CASE("seal: another order of the same shapes is named on every rank") {
  const testing::watchdog guard("seal order");
  for (const int size : {2, 3, 4}) {
    const failure cause = seal_failure(size, [&](int rank) {
      manifest made;
      made.add("first", five);
      made.add(rank == size - 1 ? "b" : "a", four);
      made.add(rank == size - 1 ? "a" : "b", wide);
      return made;
    });
    CHECK(cause.code == errc::manifest_mismatch);
    CHECK(cause.rank == size - 1);
    CHECK(cause.slots == std::vector<std::string>{"a"});
    CHECK(cause.detail.find("slot 1: rank 0 has 'a' float32 [4], rank " + std::to_string(size - 1) +
                            " has 'b' float32 [4]") != std::string::npos);
  }
}

TEST_CASE("seal: another element kind, shape or count is named on every rank") {
  const testing::watchdog guard("seal kind, shape, count");
  CHECK(seal_failure(2, [](int rank) {
          manifest made;
          rank == 0 ? made.add("w", four) : made.add("w", wide);
          return made;
        }).detail.find("rank 0 has 'w' float32 [4], rank 1 has 'w' float64 [4]") != std::string::npos);
  CHECK(seal_failure(3, [](int rank) {
          manifest made;
          made.add("w", rank == 1 ? five : four);
          return made;
        }).detail.find("rank 0 has 'w' float32 [4], rank 1 has 'w' float32 [5]") != std::string::npos);
  const failure missing = seal_failure(2, [](int rank) {
    manifest made;
    made.add("w", four);
    if (rank == 0) {
      made.add("extra", five);
    }
    return made;
  });
  CHECK(missing.slots == std::vector<std::string>{"extra"});
  CHECK(missing.detail.find("slot 1: rank 0 has 'extra' float32 [5], rank 1 has nothing") != std::string::npos);
  const failure more = seal_failure(2, [](int rank) {
    manifest made;
    made.add("w", four);
    if (rank == 1) {
      made.add("extra", five);
    }
    return made;
  });
  CHECK(more.detail.find("slot 1: rank 0 has nothing, rank 1 has 'extra' float32 [5]") != std::string::npos);
}

TEST_CASE("seal: another policy or option is named on every rank") {
  const testing::watchdog guard("seal policies");
  const auto same = [](int) {
    manifest made;
    made.add("w", four);
    return made;
  };
  CHECK(seal_failure(2, same, [](int rank) -> any_bucketing {
          return rank == 0 ? any_bucketing(bucketing::fixed_bytes{}) : bucketing::per_tensor{};
        }).detail.find("bucketing.name: rank 0 has fixed_bytes, rank 1 has per_tensor") != std::string::npos);
  CHECK(seal_failure(3, same, [](int rank) {
          return bucketing::fixed_bytes{{.bucket_bytes_max = rank == 2 ? std::size_t{7} : std::size_t{8}}};
        }).detail.find("bucketing.bucket_bytes_max: rank 0 has 8, rank 2 has 7") != std::string::npos);
}

TEST_CASE("seal: a rank that can't seal tells the others why") {
  const testing::watchdog guard("seal elsewhere");
  std::mutex telling;
  std::vector<std::string> told;
  CHECK_THROWS_AS(backend::run_loopback(3,
                                        [&](backend::loopback backend) {
                                          const int rank = backend.rank();
                                          manifest made;
                                          made.add("w", four);
                                          try {
                                            if (rank == 1) {
                                              throw std::runtime_error("no data on this rank");
                                            }
                                            auto sync = synchronize(std::move(made), std::move(backend));
                                          } catch (const sync_error& error) {
                                            const std::lock_guard lock(telling);
                                            told.push_back(error.what());
                                          }
                                        },
                                        {.timeout = 20s}),
                  std::runtime_error);
  REQUIRE(told.size() == 2);
  CHECK(told[0] == told[1]);
  CHECK(told[0].find("rank 1") != std::string::npos);
}

TEST_CASE("seal: parameters are broadcast from rank 0, in every kind") {
  const testing::watchdog guard("parameters");
  backend::run_loopback(3, [](backend::loopback backend) {
    const auto mine = static_cast<float>(backend.rank() + 1);
    std::vector<float> weights(1000, mine), weight_gradients(1000);
    std::vector<double> scales(7, mine), scale_gradients(7);
    manifest gradients;
    gradients.add("weights", weights, weight_gradients);
    gradients.add("scales", scales, scale_gradients);
    const auto sync = synchronize(std::move(gradients), std::move(backend));
    CHECK(weights == std::vector<float>(1000, 1));
    CHECK(scales == std::vector<double>(7, 1));
  });
}

TEST_CASE("synchronizer: gradients in vectors, in the arena and in an adopted buffer are all averaged in place") {
  const testing::watchdog guard("residences");
  backend::run_loopback(2, [](backend::loopback backend) {
    const auto mine = static_cast<float>(backend.rank() * 2 + 1);  // 1 and 3
    std::vector<float> own(10);
    std::vector<float> storage(10);
    std::span<float> resident(storage);
    std::vector<float> flat(10);
    manifest gradients;
    const slot first = gradients.add("own", own);
    const slot second = gradients.add("resident", in_arena(resident));
    const slot third = gradients.add_range("flat", flat.data(), flat.size());
    auto sync = synchronize(std::move(gradients), std::move(backend));
    CHECK(resident.data() != storage.data());
    CHECK(sync.gradient<float>(second).data() == resident.data());
    CHECK(sync.gradient<float>(third).data() == flat.data());
    CHECK(sync.gradient<float>(first).data() != own.data());
    for (int s = 0; s < 3; ++s) {
      own.assign(10, mine);
      std::fill(resident.begin(), resident.end(), mine);
      flat.assign(10, mine);
      sync.step([&](auto& step) {
        step.ready(third);
        step.ready(first);
        step.ready(second);
      });
      CHECK(own[9] == 2);
      CHECK(resident[9] == 2);
      CHECK(flat[9] == 2);
    }
  });
}

TEST_CASE("synchronizer: ready may come from many threads at once") {
  const testing::watchdog guard("threads");
  constexpr std::size_t slots = 400;
  constexpr std::size_t workers = 4;
  backend::run_loopback(2, [&](backend::loopback backend) {
    std::vector<std::vector<float>> tensors(slots, std::vector<float>(50));
    manifest gradients;
    for (std::size_t s = 0; s < slots; ++s) {
      gradients.add("g" + std::to_string(s), tensors[s]);
    }
    const auto mine = static_cast<float>(backend.rank() + 1);
    auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::fixed_bytes{{5000, 1000}});
    for (int round = 0; round < 20; ++round) {
      sync.step([&](auto& step) {
        std::vector<std::thread> threads;
        for (std::size_t w = 0; w < workers; ++w) {
          threads.emplace_back([&, w] {
            for (std::size_t s = w; s < slots; s += workers) {
              tensors[s].assign(50, mine * static_cast<float>(s));
              step.ready({static_cast<std::uint32_t>(s)});
            }
          });
        }
        for (std::thread& thread : threads) {
          thread.join();
        }
      });
      for (std::size_t s = 0; s < slots; ++s) {
        REQUIRE(tensors[s][49] == 1.5F * static_cast<float>(s));
      }
    }
  });
}

TEST_CASE("synchronizer: overflow to infinity on any rank is seen at the end of the step, on all of them") {
  const testing::watchdog guard("overflow");
  backend::run_loopback(3, [](backend::loopback backend) {
    std::vector<float> gradient(100);
    manifest gradients;
    const slot only = gradients.add("g", gradient);
    const int rank = backend.rank();
    auto sync = synchronize(std::move(gradients), std::move(backend), compression::fp16{});
    const auto run = [&](float value) {
      gradient.assign(100, 1);
      gradient[7] = rank == 1 ? value : 1;
      return sync.step([&](auto& step) { step.ready(only); });
    };
    CHECK(run(1).finite());
    const step_result overflowed = run(1e6F);
    CHECK(overflowed.step == 1);
    CHECK(overflowed.non_finite == 2);  // the contribution, and the average
    CHECK(run(1).finite());
    CHECK(sync.statistics().non_finite == 2);
    CHECK(sync.report().find("not finite: 2") != std::string::npos);
  });
}

TEST_CASE("statistics: buckets add up to the step, all ranks name the same slowest one, and only waiting is exposed") {
  const testing::watchdog guard("statistics");
  std::vector<int> slowest(3);
  std::atomic<bool> closed{false};
  backend::run_loopback(3, [&](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> first(300, 1), second(50, 2);
    manifest gradients;
    gradients.add("first", first);
    gradients.add("second", second);
    auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::per_tensor{});
    CHECK(sync.last_step().whole.steps == 0);
    std::atomic<int> reduced{0};
    sync.on_reduced([&](std::span<const slot> told) { reduced += static_cast<int>(told.size()); });
    auto step = sync.begin_step();
    for (; rank == 2 && !closed; std::this_thread::yield()) {
    }
    step.ready({1});
    step.ready({0});
    step.close();
    if (rank == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // hidden: rank 0 does something else
      closed = true;
    }
    for (; reduced != 2; std::this_thread::yield()) {
    }
    const auto waits = std::chrono::steady_clock::now();
    step.finish();
    const auto waited = std::chrono::steady_clock::now() - waits;
    const step_statistics& last = sync.last_step();
    CHECK(last.whole.exposed_time <= waited);
    CHECK(last.whole.communication_time <= last.whole.step_time);
    CHECK(last.whole.bytes_raw == sync.statistics().bytes_raw);
    REQUIRE(last.buckets.size() == 2);
    CHECK(last.buckets[0].bytes_raw + last.buckets[1].bytes_raw == last.whole.bytes_raw);
    CHECK(last.buckets[0].bytes_on_wire + last.buckets[1].bytes_on_wire < last.whole.bytes_on_wire);  // and the record
    CHECK(last.buckets[0].ready <= last.buckets[0].launched);
    CHECK(last.buckets[0].finished <= last.buckets[1].launched);
    slowest[static_cast<std::size_t>(rank)] = last.slowest.rank;
    const rank_statistics& named = sync.ranks()[static_cast<std::size_t>(last.slowest.rank)];
    CHECK(named.late_in_compute + named.late_in_network == 1);
  });
  CHECK(slowest[0] == slowest[1]);
  CHECK(slowest[0] == slowest[2]);
}

TEST_CASE("synchronizer: misuse is told at the call") {
  backend::run_loopback(1, [](backend::loopback backend) {
    std::vector<float> gradient(3);
    manifest gradients;
    const slot only = gradients.add("g", gradient);
    auto sync = synchronize(std::move(gradients), std::move(backend));
    {
      auto step = sync.begin_step();
      CHECK_THROWS_AS((void)sync.begin_step(), contract_violation);
      CHECK_THROWS_WITH_AS(step.ready({7}), doctest::Contains("slot 7 is not one of this manifest's 1"),
                           contract_violation);
      step.ready(only);
      CHECK_THROWS_WITH_AS(step.ready(only), doctest::Contains("'g' is ready for the second time"), contract_violation);
      step.finish();
      CHECK_THROWS_WITH_AS(step.ready(only), doctest::Contains("the step has ended"), contract_violation);
      CHECK_THROWS_AS(step.finish(), contract_violation);
    }
    CHECK_THROWS_AS(sync.gradient<double>(only), contract_violation);
    CHECK_THROWS_AS(sync.gradient<float>({1}), contract_violation);
    CHECK(sync.step([&](auto& step) { step.ready(only); }).step == 1);
  });
}

TEST_CASE("synchronizer: a tensor that changed its size is an error that reaches every rank, also if it is swallowed") {
  const testing::watchdog guard("resized tensor");
  std::mutex telling;
  std::vector<failure> causes;
  backend::run_loopback(2,
                        [&](backend::loopback backend) {
                          const int rank = backend.rank();
                          std::vector<float> gradient(30);
                          manifest gradients;
                          const slot only = gradients.add("g", gradient);
                          auto sync = synchronize(std::move(gradients), std::move(backend));
                          gradient.resize(rank == 1 ? 20 : 30);
                          try {
                            sync.step([&](auto& step) {
                              try {
                                step.ready(only);
                              } catch (const contract_violation&) {
                              }
                            });
                          } catch (const sync_error& error) {
                            const std::lock_guard lock(telling);
                            causes.push_back(error.cause());
                          }
                        },
                        {.timeout = 20s});
  REQUIRE(causes.size() == 2);
  CHECK(causes[0].code == errc::gradient_missing);
  CHECK(to_string(causes[0]) == to_string(causes[1]));
  CHECK(causes[0].rank == 1);
}

TEST_CASE("synchronizer: a gradient of no elements, and a manifest of no gradients, take steps") {
  const testing::watchdog guard("empty");
  backend::run_loopback(3, [](backend::loopback backend) {
    std::vector<float> nothing;
    manifest gradients;
    const slot empty = gradients.add("empty", nothing);
    auto sync = synchronize(std::move(gradients), std::move(backend));
    for (int s = 0; s < 3; ++s) {
      CHECK(sync.step([&](auto& step) { step.ready(empty); }).step == static_cast<std::uint64_t>(s));
    }
  });
  backend::run_loopback(3, [](backend::loopback backend) {
    auto sync = synchronize(manifest{}, std::move(backend));
    CHECK(sync.step([](auto&) {}).step == 0);
    CHECK(sync.plan().buckets.empty());
  });
}

TEST_CASE("synchronizer: a plan that loses a gradient is refused on every rank") {
  const testing::watchdog guard("wrong plan");
  struct forgetful {
    bool operator==(const forgetful&) const = default;
    bucket_plan plan(const bucketing_input&) const { return {{{slot{0}}}}; }
    bool replans_after(std::uint64_t) const { return false; }
    void describe(description& sink) const { sink.add("name", "forgetful"); }
  };
  std::mutex telling;
  std::vector<failure> causes;
  backend::run_loopback(2,
                        [&](backend::loopback backend) {
                          manifest gradients;
                          gradients.add("a", four);
                          gradients.add("b", five);
                          try {
                            auto sync = synchronize(std::move(gradients), std::move(backend), forgetful{});
                          } catch (const sync_error& error) {
                            const std::lock_guard lock(telling);
                            causes.push_back(error.cause());
                          }
                        },
                        {.timeout = 20s});
  REQUIRE(causes.size() == 2);
  CHECK(causes[0].code == errc::plan_invalid);
  CHECK(causes[1].detail.find("1 slots are in no bucket") != std::string::npos);
}

TEST_CASE("report: says which element kinds travel uncompressed") {
  backend::run_loopback(1, [](backend::loopback backend) {
    manifest gradients;
    gradients.add("a", four);
    gradients.add("b", wide);
    const auto sync = synchronize(std::move(gradients), std::move(backend), compression::bf16{});
    const std::string text = sync.report();
    CHECK(text.find("compression.name = bf16") != std::string::npos);
    CHECK(text.find("float64 gradients travel uncompressed") != std::string::npos);
    CHECK(text.find("float32 gradients travel") == std::string::npos);
  });
}

TEST_CASE("groups: steps over rows and columns of a grid are open at once and end in any order, at 1 to 4 ranks") {
  const testing::watchdog guard("grid");
  for (const int size : {1, 2, 3, 4}) {
    backend::run_loopback(size, [](backend::loopback world) { tests::run_grid(world); });
  }
}

TEST_CASE("groups: a rank that fails in one group is named on every rank") {
  const testing::watchdog guard("grid fails");
  tests::check_grid_tells_of_failure(
      [](int size, auto&& body) { backend::run_loopback(size, body, {.timeout = 20s}); });
}
