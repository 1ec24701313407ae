// Law 4: from the third step on nothing is allocated, on any rank and any thread.
#include <gradweave/gradweave.hpp>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;

// gcc can't know that these belong together.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
std::atomic<bool> counting{false};
std::atomic<std::size_t> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (counting.load(std::memory_order_relaxed)) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
  void* memory = alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                                : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes) { return allocate(bytes, 0); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

TEST_CASE("law 4: the counting allocator counts") {
  allocations = 0;
  counting = true;
  {
    const std::vector<int> some(10);
  }
  counting = false;
  CHECK(allocations == 1);
}

namespace {

/// How often ranks allocate in five steps, after two others. Under zero_fill each rank leaves other slots out.
std::size_t allocations_after_two_steps(network over, const policy_choice& choice, int size, const step_rules& rules) {
  const auto slots = random_slots(5, 20);
  std::barrier all(size);
  run_ranks(over, size, [&](any_backend backend) {
    const int rank = backend.rank();
    trial_model model(slots);
    std::vector<std::int64_t> count(3);
    std::vector<float> mean(5);
    manifest gradients = model.make_manifest();
    gradients.add_buffer("count", count, buffer_rule::broadcast(size - 1));
    gradients.add_buffer("mean", mean, buffer_rule::average());
    auto sync = synchronize_trial(std::move(gradients), std::move(backend), choice, rules);
    const auto backward = [&](auto& step) {
      for (std::uint32_t which = 0; which < slots.size(); ++which) {
        if (rules.unused_gradients == unused::strict || which % 4 != static_cast<std::uint32_t>(rank)) {
          step.ready({which});
        }
      }
    };
    const auto run = [&](int steps) {
      for (int s = 0; s < steps; ++s) {
        sync.accumulate(backward);
        sync.step(backward,
                  {.samples = rules.average == averaging::weighted_mean ? static_cast<std::uint64_t>(1 + rank) : 1});
      }
    };
    run(2);
    all.arrive_and_wait();
    if (rank == 0) {
      allocations = 0;
      counting = true;
    }
    all.arrive_and_wait();
    run(5);
    all.arrive_and_wait();
    counting = false;
  });
  return allocations;
}

}  // namespace

TEST_CASE("law 4: from the third step on nothing is allocated") {
  const testing::watchdog guard("law 4");
  for (const law_case& each : networks_and_policies()) {
    for (const int size : tests::world_sizes({1, 2, 3, 4})) {
      CHECK_MESSAGE(allocations_after_two_steps(each.over, each.choice, size, {}) == 0,
                    name_of(each.over) << " " << each.choice.name << " at " << size << " ranks");
    }
    CHECK_MESSAGE(
        allocations_after_two_steps(each.over, each.choice, 3,
                                    {.unused_gradients = unused::zero_fill, .average = averaging::weighted_mean}) == 0,
        name_of(each.over) << " " << each.choice.name << " with unused gradients and weights");
  }
}

TEST_CASE("law 4: neither are records, once there is room for them") {
  const testing::watchdog guard("law 4 with records");
  const scratch_folder folder;
  const scoped_variable level("GRADWEAVE_DEBUG", "detail"), dumps("GRADWEAVE_DEBUG_DUMP", folder.path("at").c_str());
  const scoped_variable trace("GRADWEAVE_TRACE", folder.path("at").c_str());
  const law_case some = networks_and_policies().front();
  CHECK(allocations_after_two_steps(some.over, some.choice, 2, {}) == 0);
  CHECK(folder.has("at.1.json"));
}
