#include <gradweave/compression/hook.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

namespace {

/// One type for all tests, so that one synchronizer is instantiated.
using function = std::function<void(compression::bucket_view&)>;
using any_hook = decltype(compression::hook("", function(), function()));

const bucket_member& member_of(const compression::bucket_view& bucket, std::string_view name) {
  const auto found = std::ranges::find(bucket.members(), name, &bucket_member::name);
  REQUIRE(found != bucket.members().end());
  return *found;
}

/// Two gradients in one bucket, `first` of them 8 times its rank and `second` 2 everywhere.
template <class Check>
void run_steps(int size, const step_rules& rules, const std::function<any_hook(int rank)>& hook_of, Check&& check) {
  backend::run_loopback(size, [&](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> first(3), second(2);
    manifest gradients;
    const slot one = gradients.add("first", first);
    const slot other = gradients.add("second", second);
    auto sync = synchronize(std::move(gradients), std::move(backend), overlap::blocking{}, hook_of(rank), rules.average,
                            rules.divide);
    for (int s = 0; s < 3; ++s) {
      first.assign(3, static_cast<float>(8 * rank));
      second.assign(2, 2);
      sync.step(
          [&](auto& step) {
            step.ready(one);  // not what the first plan expects: another one follows
            step.ready(other);
          },
          {.samples = rules.average == averaging::weighted_mean ? static_cast<std::uint64_t>(rank) : 1});
      check(first[2], second[1]);
    }
  });
}

/// What ranks were told that could not go on.
std::multiset<std::string> stories_of(int size, const std::function<any_hook(int rank)>& hook_of,
                                      std::function<void()>* compare_parameters = nullptr) {
  std::mutex telling;
  std::multiset<std::string> told;
  backend::run_loopback(size, [&](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> gradient(3);
    manifest gradients;
    const slot only = gradients.add("g", gradient);
    try {
      auto sync = synchronize(std::move(gradients), std::move(backend), overlap::blocking{}, hook_of(rank),
                              averaging::mean, division::after);
      if (compare_parameters != nullptr) {
        compare_parameters[rank] = [&] { sync.compare_parameters(); };
      }
      for (int s = 0; s < 3; ++s) {
        sync.step([&](auto& step) { step.ready(only); });
      }
    } catch (const sync_error& error) {
      const std::lock_guard lock(telling);
      told.insert(error.what());
    }
  });
  return told;
}

void check_one_story(const std::multiset<std::string>& told, std::size_t size, const std::string& story) {
  REQUIRE(told.size() == size);
  CHECK(told.count(*told.begin()) == size);
  CHECK_MESSAGE(told.begin()->find(story) != std::string::npos, *told.begin());
}

}  // namespace

TEST_CASE("hook: sees gradients as they were computed and as they end, and the division is right under every rule") {
  const testing::watchdog guard("hook and rules");
  for (const step_rules& rules : std::vector<step_rules>{{},
                                                         {.divide = division::before},
                                                         {.divide = division::split},
                                                         {.average = averaging::sum},
                                                         {.average = averaging::weighted_mean}}) {
    for (const int size : {2, 3, 4}) {
      double ended = 0;  // the weighted mean, or mean, or sum of 1 + min(8 r, 10)
      double weights = 0;
      for (int r = 0; r < size; ++r) {
        const double weight = rules.average == averaging::weighted_mean ? r : 1;
        ended += weight * (1 + std::min(8.0 * r, 10.0));
        weights += weight;
      }
      ended /= rules.average == averaging::sum ? 1 : weights;
      const double second = rules.average == averaging::sum ? 3 * size : 3;
      run_steps(
          size, rules,
          [&](int rank) {
            return compression::hook(
                "clamp and add",
                function([=, expected_step = std::uint64_t{0}](compression::bucket_view& bucket) mutable {
                  CHECK(bucket.step() == expected_step++);
                  CHECK(bucket.ranks() == size);
                  bucket.for_each_span<float>(member_of(bucket, "first"), [&](std::span<float> values) {
                    CHECK(values[0] == static_cast<float>(8 * rank));
                  });
                  bucket.transform([](auto value) { return 1 + std::min<decltype(value)>(value, 10); });
                }),
                function([=](compression::bucket_view& bucket) {
                  bucket.transform([&](auto value) { return std::round(1024 * value) / 64; });
                  bucket.transform(member_of(bucket, "second"), [&](auto value) {
                    CHECK(static_cast<double>(value) == 16 * second);
                    return -value;
                  });
                }));
          },
          [&](float first_ends, float second_ends) {
            CHECK(static_cast<double>(first_ends) == doctest::Approx(std::round(1024 * ended) / 64));
            CHECK(static_cast<double>(second_ends) == -16 * second);
          });
    }
  }
}

TEST_CASE("hook: one rank alone sends nothing and calls nothing") {
  run_steps(
      1, {},
      [](int) {
        const function fails = [](compression::bucket_view&) { FAIL("called"); };
        return compression::hook("fails", fails, fails);
      },
      [](float first, float second) {
        CHECK(first == 0);
        CHECK(second == 2);
      });
}

TEST_CASE("hook: what it throws, before or after the sum, fails the step on every rank, with its name and text") {
  const testing::watchdog guard("hook throws");
  const function nothing = [](compression::bucket_view&) {};
  for (const bool after : {false, true}) {
    check_one_story(stories_of(3,
                               [&](int rank) {
                                 const function throws = [=](compression::bucket_view& bucket) {
                                   if (rank == 1 && bucket.step() == 1) {
                                     throw std::runtime_error("out of paper");
                                   }
                                 };
                                 return after ? compression::hook("prints", nothing, throws)
                                              : compression::hook("prints", throws, nothing);
                               }),
                    3, "rank 1, step 1, bucket 0 (slots 'g'): an exception in hook 'prints': out of paper");
  }
  check_one_story(stories_of(2,
                             [&](int rank) {
                               const function throws = [=](compression::bucket_view&) {
                                 if (rank == 0) {
                                   throw 42;
                                 }
                               };
                               return compression::hook("counts", throws, nothing);
                             }),
                  2, "rank 0, step 0, bucket 0 (slots 'g'): an exception in hook 'counts': it is no std::exception");
}

TEST_CASE("hook: one that asks for its own synchronizer is told so, on every rank, and nobody waits for ever") {
  const testing::watchdog guard("hook asks");
  std::function<void()> compare_parameters[2];
  const auto asks = [&](int rank) {
    return compression::hook("compares", function([&, rank](compression::bucket_view&) { compare_parameters[rank](); }),
                             function([](compression::bucket_view&) {}));
  };
  check_one_story(
      stories_of(2, asks, compare_parameters), 2,
      "in hook 'compares': gradweave: a function given to on_reduced, or a hook, asks for its own synchronizer");
}

TEST_CASE("hook: ranks compare its name, which it has to have") {
  const testing::watchdog guard("hook names");
  const function nothing = [](compression::bucket_view&) {};
  check_one_story(
      stories_of(2, [&](int rank) { return compression::hook("clip " + std::to_string(rank), nothing, nothing); }), 2,
      "ranks disagree on compression.hook: rank 0 has clip 0, rank 1 has clip 1");
  CHECK_THROWS_WITH_AS(compression::hook("", nothing), doctest::Contains("hook: the name is empty"),
                       contract_violation);
}
