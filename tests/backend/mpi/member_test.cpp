// With an operator new that counts. MPI, which is C, allocates by malloc; what is counted is ours.
#include <gradweave/backend/mpi/member.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/mpi.hpp"

using namespace gradweave;
using namespace gradweave::backend;

// gcc can't know that these belong together.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {
std::atomic<std::size_t> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) {
    return memory;
  }
  throw std::bad_alloc();
}
// Sanitizers have one of their own, which does not go with what is below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return std::malloc(bytes == 0 ? 1 : bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

TEST_CASE("law 4 over mpi: collectives that ask for no more than those before allocate nothing") {
  const testing::watchdog guard("allocations over mpi");
  mpi::backend_type world = mpi::from_communicator(MPI_COMM_WORLD, {.chunk_bytes = 4096});
  const auto size = static_cast<std::size_t>(world.size());
  const auto arena = world.allocate_arena(size * 4000);
  std::vector<std::byte> own(size * 4000);
  std::vector<std::size_t> pieces;
  for (std::size_t r = 0; r <= size; ++r) {
    pieces.push_back(r * 1000);
  }
  const extent in_arena{arena.data(), size * 4000, 0};
  const extent halves[] = {{own.data(), 2000, 0}, {own.data() + 2000, size * 4000 - 2000, 2000}};
  const auto run_all = [&] {
    for (const bool scattered : {false, true}) {
      const std::span<const extent> data = scattered ? std::span<const extent>(halves) : std::span(&in_arena, 1);
      const std::span<const extent> source = scattered ? std::span(&in_arena, 1) : std::span<const extent>(halves);
      for (const collective operation :
           {collective::all_reduce, collective::reduce_scatter, collective::all_gather, collective::all_to_all,
            collective::broadcast, collective::barrier, collective::gather}) {
        for (const element_kind kind : {element_kind::float32, element_kind::bfloat16}) {
          const std::size_t shorter = kind == element_kind::float32 ? 0 : 2000;  // half as many bytes a piece
          const extent half{data.front().memory, data.front().bytes - (scattered ? 0 : size * shorter), 0};
          const bool whole = scattered || kind == element_kind::float32;
          if (scattered && kind == element_kind::bfloat16) {
            continue;
          }
          run_collective(world, {.operation = operation,
                                 .kind = kind,
                                 .data = whole ? data : std::span(&half, 1),
                                 .pieces = pieces,
                                 .source = source,
                                 .source_pieces = pieces});
        }
      }
    }
  };
  run_all();
  run_all();
  const std::size_t before = allocations;
  run_all();
  run_all();
  CHECK(allocations == before);
}
