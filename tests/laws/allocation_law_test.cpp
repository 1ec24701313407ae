// Law 4: from the third step on nothing is allocated, on any rank and any thread.
#include <gradweave/gradweave.hpp>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/networks.hpp"
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

TEST_CASE("law 4: from the third step on nothing is allocated") {
  const testing::watchdog guard("law 4");
  for (const law_case& each : networks_and_policies()) {
    const network over = each.over;
    const policy_choice& choice = each.choice;
    for (const int size : tests::world_sizes({1, 2, 3, 4})) {
      const auto slots = random_slots(5, 20);
      std::barrier all(size);
      run_ranks(over, size, [&](any_backend backend) {
        const int rank = backend.rank();
        trial_model model(slots);
        auto sync = synchronize_trial(model, std::move(backend), choice);
        const auto run = [&](int steps) {
          for (int s = 0; s < steps; ++s) {
            sync.step([&](auto& step) {
              for (std::uint32_t which = 0; which < slots.size(); ++which) {
                step.ready({which});
              }
            });
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
      CHECK_MESSAGE(allocations == 0, name_of(over) << " " << choice.name << " at " << size << " ranks");
    }
  }
}
