// Law 4: from the third step on nothing is allocated, on any rank and any thread. And how much is allocated before: of gradients
// in the arena there is no second copy.
#include <gradweave/gradweave.hpp>

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/support/stream_trial.hpp"
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

/// Bytes that are allocated now, and the most that ever were since the peak was set: by operator new, and as arenas.
std::atomic<std::ptrdiff_t> live_bytes{0};
std::atomic<std::ptrdiff_t> peak_bytes{0};

void count_bytes(std::ptrdiff_t more) noexcept {
  const std::ptrdiff_t now = live_bytes.fetch_add(more, std::memory_order_relaxed) + more;
  std::ptrdiff_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (peak < now && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  // A simulated device's own do not count.
  if (counting.load(std::memory_order_relaxed) && simulation_scope::depth == 0) {
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
  void* memory = alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                                : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  count_bytes(static_cast<std::ptrdiff_t>(::malloc_usable_size(memory)));
  return memory;
}

void release(void* memory) noexcept {
  count_bytes(-static_cast<std::ptrdiff_t>(::malloc_usable_size(memory)));
  std::free(memory);
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
// Sanitizers have one of their own, which does not go with what is below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, 0);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

TEST_CASE("law 4: the counting allocator counts") {
  allocations = 0;
  const std::ptrdiff_t before = live_bytes;
  peak_bytes = before;
  counting = true;
  {
    const std::vector<int> some(10);
  }
  counting = false;
  CHECK(allocations == 1);
  CHECK(peak_bytes - before >= static_cast<std::ptrdiff_t>(10 * sizeof(int)));
  CHECK(live_bytes == before);
}

namespace {

/// Any backend, whose arenas are counted too: they may be shared segments.
class metered_backend : public any_backend {
 public:
  explicit metered_backend(any_backend backend) : any_backend(std::move(backend)) {}

  class metered_arena {
   public:
    metered_arena(arena memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
      count_bytes(static_cast<std::ptrdiff_t>(bytes));
    }
    metered_arena(metered_arena&& other) noexcept
        : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, 0)) {}
    metered_arena& operator=(metered_arena&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~metered_arena() { count_bytes(-static_cast<std::ptrdiff_t>(bytes_)); }

    std::byte* data() const { return memory_.data(); }

   private:
    arena memory_;
    std::size_t bytes_;
  };

  metered_arena allocate_arena(std::size_t bytes) { return {any_backend::allocate_arena(bytes), bytes}; }
};

/// How often ranks allocate in five steps, after two others. Under zero_fill each rank leaves other slots out.
std::size_t allocations_after_two_steps(network over, const policy_choice& choice, int size, const step_rules& rules) {
  const auto slots = random_slots(5, 20);
  std::barrier all(size);
  run_ranks(over, size, [&](any_backend any) {
    metered_backend backend(std::move(any));
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

namespace {

/// What all ranks together allocate at most, from before they seal to after a new plan and some steps.
struct memory_use {
  std::ptrdiff_t allocated = 0;
  std::ptrdiff_t gradients = 0;
  std::ptrdiff_t largest_buckets = 0;
};

/// Gradients of two kinds that live in the arena, in several buckets.
memory_use memory_of_resident_gradients(network over, const policy_choice& choice, int size,
                                        all_reduce_algorithm algorithm = all_reduce_algorithm::automatic) {
  constexpr std::size_t slots = 24, elements = 50'000;
  std::barrier all(size);
  memory_use use;
  run_ranks(
      over, size,
      [&](any_backend any) {
        metered_backend backend(std::move(any));
        const int rank = backend.rank();
        std::vector<float> before_sealing(elements);  // where tensors point before the arena gives them memory
        std::vector<std::span<float>> wide(slots / 2, before_sealing);
        std::vector<std::span<float16>> half(slots / 2, {reinterpret_cast<float16*>(before_sealing.data()), elements});
        manifest gradients;
        for (std::size_t i = 0; i < slots / 2; ++i) {
          gradients.add("wide" + std::to_string(i), in_arena(wide[i]));
          gradients.add("half" + std::to_string(i), in_arena(half[i]));
        }
        all.arrive_and_wait();
        if (rank == 0) {
          peak_bytes = live_bytes.load();
          use.allocated = -peak_bytes.load();
        }
        all.arrive_and_wait();
        auto sync = synchronize_trial(std::move(gradients), std::move(backend), choice);
        for (int s = 0; s < 4; ++s) {
          sync.step([&](auto& step) {
            for (std::uint32_t which = 0; which < slots; ++which) {
              step.ready({which});
            }
          });
        }
        all.arrive_and_wait();
        if (rank == 0) {
          use.allocated += peak_bytes.load();
          use.gradients = static_cast<std::ptrdiff_t>(slots / 2 * elements * (sizeof(float) + sizeof(float16))) * size;
          std::size_t largest = 0;
          for (const auto& bucket : sync.plan().buckets) {
            largest = std::max(largest, bucket.size() * elements * (bucket.front().index % 2 == 0 ? 4U : 2U));
          }
          use.largest_buckets = static_cast<std::ptrdiff_t>(largest) * size;
        }
        all.arrive_and_wait();
      },
      {.algorithm = algorithm});
  return use;
}

}  // namespace

TEST_CASE("memory: gradients in the arena exist once; besides there is scratch for two of the largest bucket at most") {
  const testing::watchdog guard("memory");
  constexpr std::ptrdiff_t rank_bytes = 64 * 1024;  // of buckets, records, names, and chunks of sums
  const auto check = [](const law_case& each, int size, all_reduce_algorithm algorithm) {
    const memory_use use = memory_of_resident_gradients(each.over, each.choice, size, algorithm);
    CHECK(use.allocated >= use.gradients);
    CHECK_MESSAGE(use.allocated <= use.gradients + (size > 1 ? 2 * use.largest_buckets : 0) + size * rank_bytes,
                  std::string(name_of(each.over)) << " " << each.choice.name << " at " << size << " ranks: "
                                                  << use.gradients << " + " << use.allocated - use.gradients
                                                  << " bytes, " << use.largest_buckets << " in the largest buckets");
  };
  for (law_case each : networks_and_policies()) {
    each.choice.bucketing = bucketing::ready_order{{.bucket_bytes_max = 500'000, .first_bucket_bytes_max = 300'000}};
    for (const int size : tests::world_sizes({1, 2, 3})) {
      check(each, size, all_reduce_algorithm::automatic);
    }
    if (each.over == network::tcp && each.choice.compresses == compression_name::none) {
      check(each, 2, all_reduce_algorithm::recursive_doubling);  // it has scratch too: as much as a bucket
    }
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

TEST_CASE("law 4: neither is anything on streams, nor in the watch over them") {
  const testing::watchdog guard("law 4 on streams");
  constexpr int size = 3;
  for (const auto& choice : {stream_choice{}, stream_choice{.compression = compression::bf16{}}}) {
    simulated_machine machine;
    std::barrier all(size);
    run_streams(machine, size, [&](stream_rank own) {
      const int rank = own.backend.rank();
      stream_trainer trainer(machine, rank, 9);
      auto sync = synchronize_streams(trainer, std::move(own), choice);
      const auto run = [&](std::uint64_t step) {
        sync.step(trainer.main(), [&](auto& open) {
          for (std::uint32_t which = 0; which < trainer.slots(); ++which) {
            open.ready({which}, trainer.compute(which, step));
          }
        });
        trainer.order_streams();
      };
      run(0);
      run(1);
      sync.synchronize();
      all.arrive_and_wait();
      if (rank == 0) {
        allocations = 0;
        counting = true;
      }
      all.arrive_and_wait();
      for (std::uint64_t step = 2; step < 7; ++step) {
        run(step);
      }
      sync.synchronize();
      all.arrive_and_wait();
      counting = false;
      trainer.wait();
    });
    CHECK(allocations == 0);
  }
}
