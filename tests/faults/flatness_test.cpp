// What a long training, and many short ones, leave behind in their process: nothing.
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// What this process holds.
struct holdings {
  std::size_t descriptors;
  std::size_t threads;
  std::size_t heap_bytes;  // that are allocated; 0 under a sanitizer, which has an allocator of its own
  std::size_t resident_bytes;

  static holdings now() {
    const auto entries = [](const char* folder) {
      return static_cast<std::size_t>(
          std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
    };
    std::size_t pages = 0;
    std::size_t resident_pages = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident_pages;
    return {entries("/proc/self/fd"), entries("/proc/self/task"), ::mallinfo2().uordblks + ::mallinfo2().hblkhd,
            resident_pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))};
  }

  /// A thread that has been joined can still be listed for a moment.
  static holdings now_with_threads(std::size_t count) {
    for (int i = 0; i < 1000 && now().threads != count; ++i) {
      std::this_thread::sleep_for(1ms);
    }
    return now();
  }
};

/// That nothing grew: of memory, less than an allocation of a few bytes each time would come to.
void check_flat(const holdings& before, const holdings& after) {
  constexpr std::size_t heap_growth_max = std::size_t{64} << 10;
  constexpr std::size_t resident_growth_max = std::size_t{8} << 20;
  CHECK(after.descriptors == before.descriptors);
  CHECK(after.threads == before.threads);
  CHECK(after.heap_bytes <= before.heap_bytes + heap_growth_max);
  CHECK((after.heap_bytes == 0 || after.resident_bytes <= before.resident_bytes + resident_growth_max));
  MESSAGE("descriptors " << before.descriptors << " -> " << after.descriptors << ", threads " << before.threads
                         << " -> " << after.threads << ", heap bytes " << before.heap_bytes << " -> "
                         << after.heap_bytes << ", resident bytes " << before.resident_bytes << " -> "
                         << after.resident_bytes);
}

/// Trains; calls `between(sync.rank(), step)` before each step.
template <class Between>
void train(backend::tcp::backend_type backend, std::uint64_t steps, Between&& between) {
  std::vector<std::vector<float>> tensors(3, std::vector<float>(100));
  manifest gradients;
  std::vector<slot> slots;
  for (auto& each : tensors) {
    slots.push_back(gradients.add("layer" + std::to_string(slots.size()), each));
  }
  auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::per_tensor{});
  for (std::uint64_t step = 0; step < steps; ++step) {
    sync.step([&](auto& current) {
      between(sync.rank(), step);
      for (const slot each : slots) {
        current.ready(each);
      }
    });
  }
}

}  // namespace

TEST_CASE("descriptors, threads and memory are flat over 10,000 steps") {
  const testing::watchdog guard("10,000 steps", 120s);
  constexpr std::uint64_t warm_up = 100;
  const std::uint64_t steps = repetitions(10'000);
  std::vector<holdings> seen;
  run_tcp(2, [&](backend::tcp::backend_type backend) {
    train(std::move(backend), warm_up + steps + 1, [&](int rank, std::uint64_t step) {
      if (rank == 0 && (step == warm_up || step == warm_up + steps)) {
        seen.push_back(holdings::now());
      }
    });
  });
  REQUIRE(seen.size() == 2);
  check_flat(seen[0], seen[1]);
}

TEST_CASE("descriptors, threads and memory are flat over 200 jobs in one process, some of which fail") {
  const testing::watchdog guard("200 jobs", 120s);
  const auto run_jobs = [](std::size_t count) {
    for (std::size_t job = 0; job < count; ++job) {
      const bool fails = job % 4 == 3;
      const auto run = [&] {
        run_tcp(2 + static_cast<int>(job % 2), [&](backend::tcp::backend_type backend) {
          train(std::move(backend), 3, [&](int rank, std::uint64_t step) {
            if (fails && rank == 1 && step == 1) {
              throw std::runtime_error("the data is bad");
            }
          });
        });
      };
      if (fails) {
        CHECK_THROWS_AS(run(), sync_error);
      } else {
        CHECK_NOTHROW(run());
      }
    }
  };
  run_jobs(20);
  const auto before = holdings::now_with_threads(2);  // this one and the guard
  run_jobs(repetitions(200));
  check_flat(before, holdings::now_with_threads(2));
}
