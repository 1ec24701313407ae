/// @file
/// Jobs over MPI: each rank is a process that runs the same tests, and what the ranks of other backends share in memory
/// these exchange.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/backend/mpi.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/transport/failure_message.hpp>

/// LeakSanitizer's, where a program has that.
extern "C" __attribute__((weak)) void __lsan_do_leak_check();

namespace gradweave::tests {

/// MPI from the first test that needs it to the end of the process, as a program that uses it itself has it.
class mpi_world {
 public:
  static mpi_world& instance() {
    static mpi_world world;
    return world;
  }
  mpi_world(const mpi_world&) = delete;
  mpi_world& operator=(const mpi_world&) = delete;
  ~mpi_world() {
    // MPI_Finalize unloads plugins that have left memory behind: then nobody can say whose it was.
    if (__lsan_do_leak_check != nullptr) {
      __lsan_do_leak_check();
    }
    MPI_Finalize();
  }

  int rank() const { return backend::mpi::rank_in(MPI_COMM_WORLD); }
  int size() const { return backend::mpi::size_of(MPI_COMM_WORLD); }

  std::atomic<int>& next_counter() {
    const std::size_t place = counters_used_++ % counters;
    if (place == 0) {  // a new row of them, where nobody is still at the old one
      MPI_Barrier(MPI_COMM_WORLD);
      if (rank() == 0) {
        for (std::size_t i = 0; i < counters; ++i) {
          shared_[i] = 0;
        }
      }
      MPI_Barrier(MPI_COMM_WORLD);
    }
    return shared_[place];
  }

 private:
  static constexpr std::size_t counters = 1024;

  mpi_world() {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
    void* base = nullptr;
    MPI_Win window = MPI_WIN_NULL;  // freed by MPI_Finalize
    MPI_Win_allocate_shared(rank() == 0 ? static_cast<MPI_Aint>(counters * sizeof(std::atomic<int>)) : 0, 1,
                            MPI_INFO_NULL, MPI_COMM_WORLD, static_cast<void*>(&base), &window);
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window, 0, &bytes, &unit, static_cast<void*>(&base));
    shared_ = static_cast<std::atomic<int>*>(base);
  }

  std::atomic<int>* shared_ = nullptr;
  std::size_t counters_used_ = 0;
};

/// What the conformance kits take: `run(size, body)`, where `size` is that of the job.
class run_mpi {
 public:
  explicit run_mpi(backend::mpi::options given = {}) : given_(given) {}

  template <class Body>
  void operator()(int size, Body&& body) {
    require(size == mpi_world::instance().size(), "run_mpi: every process has to take part");
    body(backend::mpi::from_communicator(MPI_COMM_WORLD, given_));
  }

  std::atomic<int>& counter() { return mpi_world::instance().next_counter(); }

  void gather(std::vector<testing::detail::collective_outcome>& outcomes) {
    constexpr std::size_t room = failure_message_bytes_max + 8;
    std::vector<char> all(outcomes.size() * room);
    const auto own = static_cast<std::size_t>(mpi_world::instance().rank());
    const std::vector<std::byte> cause = encode_failure(outcomes[own].cause);
    char* const mine = all.data() + own * room;
    mine[0] = outcomes[own].threw ? 1 : 0;
    const auto bytes = static_cast<std::uint32_t>(cause.size());
    std::memcpy(mine + 4, &bytes, sizeof bytes);
    std::memcpy(mine + 8, cause.data(), cause.size());
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all.data(), room, MPI_BYTE, MPI_COMM_WORLD);
    for (std::size_t r = 0; r < outcomes.size(); ++r) {
      std::uint32_t length = 0;
      std::memcpy(&length, all.data() + r * room + 4, sizeof length);
      outcomes[r].threw = all[r * room] != 0;
      const auto* message = reinterpret_cast<const std::byte*>(all.data() + r * room + 8);
      outcomes[r].cause = decode_failure({message, length}).value();
    }
  }

  void sum(std::span<std::uint64_t> numbers) {
    MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_UINT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
  }

 private:
  backend::mpi::options given_;
};

}  // namespace gradweave::tests
