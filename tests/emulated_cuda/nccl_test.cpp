// The emulated NCCL: right results where the rules are kept, and what breaking them leads to.
#include "tests/emulated_cuda/control.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/emulated_cuda/reduce.hpp"

namespace emulated = emulated_cuda;
using gradweave::testing::watchdog;

namespace {

/// One rank of a test: a device, a stream, a communicator, and memory for what goes in and comes out.
struct rank_of_test {
  int rank = 0, size = 0;
  ncclComm_t world = nullptr;
  cudaStream_t stream = nullptr;
  void* in = nullptr;
  void* out = nullptr;

  static constexpr std::size_t bytes = 1024;

  template <class T>
  void put(const std::vector<T>& values) const {
    CHECK(cudaMemcpyAsync(in, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  }
  template <class T>
  std::vector<T> take(std::size_t count) const {
    std::vector<T> values(count);
    CHECK(cudaMemcpyAsync(values.data(), out, count * sizeof(T), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
    return values;
  }
};

/// Calls `body` on a thread for each rank, and takes its communicator down unless the body did. Communicators are blocking.
void with_ranks(int size, const std::function<void(rank_of_test&)>& body) {
  const emulated::session session;
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      rank_of_test own{.rank = rank, .size = size};
      CHECK(cudaSetDevice(rank) == cudaSuccess);
      CHECK(cudaStreamCreateWithFlags(&own.stream, cudaStreamNonBlocking) == cudaSuccess);
      CHECK(cudaMalloc(&own.in, rank_of_test::bytes) == cudaSuccess);
      CHECK(cudaMalloc(&own.out, rank_of_test::bytes) == cudaSuccess);
      CHECK(ncclCommInitRank(&own.world, size, id, rank) == ncclSuccess);
      body(own);
      if (own.world != nullptr) {
        CHECK(ncclCommFinalize(own.world) == ncclSuccess);
        CHECK(ncclCommDestroy(own.world) == ncclSuccess);
      }
      CHECK(cudaFree(own.in) == cudaSuccess);
      CHECK(cudaFree(own.out) == cudaSuccess);
      CHECK(cudaStreamDestroy(own.stream) == cudaSuccess);
    });
  }
  for (std::thread& each : threads) {
    each.join();
  }
  CHECK(emulated::to_string(emulated::live()) == "");
}

template <class T>
double number(T value) {
  return static_cast<double>(emulated::detail::widened(value));
}

/// 1 or 2, so that products of four are exact in every type.
double value_of(int rank, std::size_t i) { return 1 + (rank + static_cast<int>(i)) % 2; }

double expected(ncclRedOp_t operation, int size, std::size_t i) {
  double sum = 0, product = 1, least = 2, greatest = 1;
  for (int rank = 0; rank < size; ++rank) {
    const double value = value_of(rank, i);
    sum += value;
    product *= value;
    least = std::min(least, value);
    greatest = std::max(greatest, value);
  }
  switch (operation) {
    case ncclSum: return sum;
    case ncclProd: return product;
    case ncclMax: return greatest;
    case ncclMin: return least;
    default: return sum / size;
  }
}

std::vector<int> iota_from(int first, std::size_t count) {
  std::vector<int> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    made[i] = first + static_cast<int>(i);
  }
  return made;
}

}  // namespace

TEST_CASE("emulated NCCL: all-reduces of every type and operation, in place and not") {
  const watchdog dog("emulated NCCL: all-reduce");
  for (const int size : {1, 2, 3, 4}) {
    with_ranks(size, [](rank_of_test& own) {
      for (int type = 0; type < ncclNumTypes; ++type) {
        for (const ncclRedOp_t operation : {ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg}) {
          emulated::detail::visit_type(static_cast<ncclDataType_t>(type), [&]<class T>(std::type_identity<T>) {
            constexpr std::size_t count = 5;
            std::vector<T> values;
            for (std::size_t i = 0; i < count; ++i) {
              using wide = decltype(emulated::detail::widened(T{}));
              values.push_back(emulated::detail::narrowed<T>(static_cast<wide>(value_of(own.rank, i))));
            }
            own.put(values);
            void* const target = operation == ncclMax ? own.in : own.out;
            CHECK(ncclAllReduce(own.in, target, count, static_cast<ncclDataType_t>(type), operation, own.world,
                                own.stream) == ncclSuccess);
            if (target == own.in) {
              CHECK(cudaMemcpyAsync(own.out, own.in, count * sizeof(T), cudaMemcpyDeviceToDevice, own.stream) ==
                    cudaSuccess);
            }
            const std::vector<T> seen = own.take<T>(count);
            for (std::size_t i = 0; i < count; ++i) {
              const double wanted = expected(operation, own.size, i);
              const bool is_exact = operation != ncclAvg || own.size != 3;
              const double allowed = is_exact ? 0 : sizeof(T) == 1 ? 0.3 : 0.02;
              const double off = number(seen[i]) - (std::is_integral_v<T> ? std::floor(wanted) : wanted);
              CHECK(std::abs(off) <= (sizeof(T) == 1 && operation == ncclAvg ? 0.3 : allowed));
            }
          });
        }
      }
    });
  }
}

TEST_CASE("emulated NCCL: the other collectives, and sends and receives in a group") {
  const watchdog dog("emulated NCCL: collectives");
  for (const int size : {1, 2, 3, 4}) {
    with_ranks(size, [](rank_of_test& own) {
      const auto n = static_cast<std::size_t>(own.size);
      const int r = own.rank;
      own.put(iota_from(100 * r, 2 * n));
      CHECK(ncclReduceScatter(own.in, own.out, 2, ncclInt32, ncclSum, own.world, own.stream) == ncclSuccess);
      const int base = 100 * own.size * (own.size - 1) / 2;
      CHECK(own.take<int>(2) == std::vector<int>{base + own.size * 2 * r, base + own.size * (2 * r + 1)});

      CHECK(ncclAllGather(own.in, own.out, 3, ncclInt32, own.world, own.stream) == ncclSuccess);
      std::vector<int> gathered;
      for (int rank = 0; rank < own.size; ++rank) {
        const auto part = own.size == 1 ? iota_from(0, 2) : iota_from(100 * rank, 3);
        gathered.insert(gathered.end(), part.begin(), part.end());
      }
      std::vector<int> seen = own.take<int>(3 * n);
      seen.resize(gathered.size());
      CHECK(seen == gathered);

      const int root = own.size - 1;
      CHECK(ncclBroadcast(own.in, own.out, 2, ncclInt32, root, own.world, own.stream) == ncclSuccess);
      CHECK(own.take<int>(2) == iota_from(100 * root, 2));
      CHECK(ncclReduce(own.in, own.out, 2, ncclInt32, ncclMax, 0, own.world, own.stream) == ncclSuccess);
      CHECK(own.take<int>(2) == iota_from(100 * root, 2));  // on others, the broadcast's

      // To the right, and from the left, of two sizes: each would wait for ever without the group.
      const int right = (r + 1) % own.size, left = (r + own.size - 1) % own.size;
      auto* const out = static_cast<int*>(own.out);
      CHECK(ncclGroupStart() == ncclSuccess);
      CHECK(ncclSend(own.in, 1, ncclInt32, right, own.world, own.stream) == ncclSuccess);
      CHECK(ncclRecv(out, 1, ncclInt32, left, own.world, own.stream) == ncclSuccess);
      CHECK(ncclSend(own.in, 2, ncclInt32, right, own.world, own.stream) == ncclSuccess);
      CHECK(ncclRecv(out + 1, 2, ncclInt32, left, own.world, own.stream) == ncclSuccess);
      CHECK(ncclGroupEnd() == ncclSuccess);
      CHECK(own.take<int>(3) == std::vector<int>{100 * left, 100 * left, 100 * left + 1});

      CHECK(ncclAllReduce(own.in, own.out, 0, ncclInt32, ncclSum, own.world, own.stream) == ncclSuccess);
      std::vector<int> on_host(4);
      CHECK(ncclAllReduce(on_host.data(), own.out, 1, ncclInt32, ncclSum, own.world, own.stream) ==
            ncclInvalidArgument);
      CHECK(ncclAllReduce(own.in, own.out, 257, ncclInt32, ncclSum, own.world, own.stream) == ncclInvalidArgument);
    });
  }
}

TEST_CASE("emulated NCCL: a group over two streams runs after both, and both go on after it") {
  const watchdog dog("emulated NCCL: streams of a group");
  with_ranks(2, [](rank_of_test& own) {
    cudaStream_t other = nullptr;
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
    emulated::hold(other);
    CHECK(cudaMemsetAsync(own.in, own.rank + 1, 4, other) == cudaSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(own.in, own.out, 4, ncclUint8, ncclSum, own.world, own.stream) == ncclSuccess);
    CHECK(ncclAllReduce(own.in, static_cast<char*>(own.out) + 4, 4, ncclUint8, ncclMax, own.world, other) ==
          ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(cudaStreamQuery(own.stream) == cudaErrorNotReady);
    emulated::release(other);
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    CHECK(own.take<std::uint8_t>(8) == std::vector<std::uint8_t>{3, 3, 3, 3, 2, 2, 2, 2});
    CHECK(cudaStreamDestroy(other) == cudaSuccess);
  });
}

TEST_CASE("emulated NCCL: a communicator that is not blocking has to be polled, or nothing starts") {
  const watchdog dog("emulated NCCL: in progress");
  const emulated::session session;
  emulated::set_progress_polls(3);
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  std::array<ncclComm_t, 2> ranks{};
  std::array<cudaStream_t, 2> streams{};
  std::array<void*, 2> memory{};
  const auto polls = [&](ncclComm_t of) {
    int count = 1;
    ncclResult_t state = ncclInProgress;
    while (ncclCommGetAsyncError(of, &state) == ncclSuccess && state == ncclInProgress) {
      ++count;
    }
    CHECK(state == ncclSuccess);
    return count;
  };
  ncclResult_t state = ncclSuccess;
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(cudaSetDevice(static_cast<int>(r)) == cudaSuccess);
    CHECK(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking) == cudaSuccess);
    CHECK(cudaMalloc(&memory[r], 4) == cudaSuccess);
    CHECK(cudaMemsetAsync(memory[r], 1, 4, streams[r]) == cudaSuccess);
    CHECK(ncclCommInitRankConfig(&ranks[r], 2, id, static_cast<int>(r), &config) == ncclInProgress);
    CHECK(ncclCommGetAsyncError(ranks[r], &state) == ncclSuccess);
    CHECK(state == ncclInProgress);
    int count = 0;
    CHECK(ncclCommCount(ranks[r], &count) == ncclInvalidArgument);
  }
  CHECK(polls(ranks[0]) == 4);
  polls(ranks[1]);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(memory[r], memory[r], 4, ncclUint8, ncclSum, ranks[r], streams[r]) == ncclInProgress);
  }
  CHECK(emulated::settle());  // the streams are empty: an event recorded now would not wait for the collective
  CHECK(polls(ranks[0]) == 4);
  CHECK(!emulated::settle());  // one rank is there, the other is not
  polls(ranks[1]);
  CHECK(emulated::settle());
  std::uint8_t seen = 0;
  CHECK(cudaMemcpy(&seen, memory[0], 1, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(seen == 2);
}

TEST_CASE("emulated NCCL: ranks that do not agree wait until they are aborted") {
  const watchdog dog("emulated NCCL: mismatch");
  for (const bool counts_differ : {true, false}) {
    const emulated::session session;
    ncclUniqueId ids[2];
    CHECK(ncclGetUniqueId(&ids[0]) == ncclSuccess);
    CHECK(ncclGetUniqueId(&ids[1]) == ncclSuccess);
    ncclComm_t communicators[2][2];  // by communicator, by rank
    cudaStream_t streams[2][2];
    void* memory[2];
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(cudaSetDevice(rank) == cudaSuccess);
      CHECK(cudaMalloc(&memory[rank], 64) == cudaSuccess);
      for (int c = 0; c < 2; ++c) {
        CHECK(ncclCommInitRank(&communicators[c][rank], 2, ids[c], rank) == ncclSuccess);
        CHECK(cudaStreamCreateWithFlags(&streams[c][rank], cudaStreamNonBlocking) == cudaSuccess);
      }
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    const auto launch = [&](int c, int rank, std::size_t count) {
      CHECK(ncclAllReduce(memory[rank], memory[rank], count, ncclUint8, ncclSum, communicators[c][rank],
                          streams[c][rank]) == ncclSuccess);
    };
    if (counts_differ) {
      launch(0, 0, 8);
      launch(0, 1, 9);
    } else {
      // Both devices hold a kernel that waits for one which has no place on the other.
      launch(0, 0, 8);
      emulated::settle();
      launch(1, 1, 8);
      emulated::settle();
      launch(1, 0, 8);
      launch(0, 1, 8);
    }
    CHECK(!emulated::settle());
    for (int c = 0; c < 2; ++c) {
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(ncclCommAbort(communicators[c][rank]) == ncclSuccess);
      }
    }
    CHECK(emulated::settle());
    CHECK(emulated::live().communicators == 0);
  }
}

TEST_CASE(
    "emulated NCCL: two communicators launched in one order on all ranks get through, however streams are shuffled") {
  const watchdog dog("emulated NCCL: one order");
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const emulated::session session;
    emulated::shuffle(seed);
    ncclComm_t communicators[2][2];  // by communicator, by rank
    cudaStream_t streams[2][2];
    void* memory[2];
    CHECK(ncclGroupStart() == ncclSuccess);
    ncclUniqueId ids[2];
    for (int c = 0; c < 2; ++c) {
      CHECK(ncclGetUniqueId(&ids[c]) == ncclSuccess);
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(cudaSetDevice(rank) == cudaSuccess);
        CHECK(cudaMalloc(&memory[rank], 64) == cudaSuccess);
        CHECK(ncclCommInitRank(&communicators[c][rank], 2, ids[c], rank) == ncclSuccess);
        CHECK(cudaStreamCreateWithFlags(&streams[c][rank], cudaStreamNonBlocking) == cudaSuccess);
      }
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int rank = 0; rank < 2; ++rank) {
      for (int i = 0; i < 6; ++i) {
        CHECK(ncclAllReduce(memory[rank], memory[rank], 8, ncclUint8, ncclSum, communicators[i % 2][rank],
                            streams[i % 2][rank]) == ncclSuccess);
      }
    }
    CHECK(emulated::settle());
  }
}

TEST_CASE("emulated NCCL: a rank that is dropped leaves others waiting, told of it or not") {
  const watchdog dog("emulated NCCL: dropped rank");
  for (const emulated::notice notice : {emulated::notice::none, emulated::notice::remote_error}) {
    with_ranks(3, [&](rank_of_test& own) {
      if (own.rank == 1) {
        emulated::drop(own.world, notice);
      }
      const ncclResult_t launched = ncclAllReduce(own.in, own.out, 4, ncclInt32, ncclSum, own.world, own.stream);
      if (own.rank == 1) {
        CHECK(cudaStreamSynchronize(own.stream) == cudaSuccess);
      } else if (notice == emulated::notice::remote_error) {
        ncclResult_t error = ncclSuccess;
        while (error == ncclSuccess) {
          CHECK(ncclCommGetAsyncError(own.world, &error) == ncclSuccess);
        }
        CHECK(error == ncclRemoteError);
      } else {
        CHECK(launched == ncclSuccess);
        CHECK(cudaStreamQuery(own.stream) == cudaErrorNotReady);
      }
      CHECK(ncclCommAbort(own.world) == ncclSuccess);
      own.world = nullptr;
      CHECK(cudaStreamSynchronize(own.stream) == cudaSuccess);
    });
  }
}

TEST_CASE("emulated NCCL: split orders by key, and a colour of -1 gives nothing") {
  const watchdog dog("emulated NCCL: split");
  with_ranks(4, [](rank_of_test& own) {
    ncclComm_t part = nullptr, nothing = nullptr;
    CHECK(ncclCommSplit(own.world, own.rank % 2, -own.rank, &part, nullptr) == ncclSuccess);
    int rank = 0, count = 0, device = 0;
    CHECK(ncclCommUserRank(part, &rank) == ncclSuccess);
    CHECK(ncclCommCount(part, &count) == ncclSuccess);
    CHECK(ncclCommCuDevice(part, &device) == ncclSuccess);
    CHECK(rank == (own.rank < 2 ? 1 : 0));
    CHECK(count == 2);
    CHECK(device == own.rank);
    own.put(std::vector<int>{own.rank});
    CHECK(ncclAllReduce(own.in, own.out, 1, ncclInt32, ncclSum, part, own.stream) == ncclSuccess);
    CHECK(own.take<int>(1).front() == 2 + 2 * (own.rank % 2));
    CHECK(ncclCommSplit(own.world, own.rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &nothing, nullptr) == ncclSuccess);
    CHECK((nothing == nullptr) == (own.rank != 0));
    if (nothing != nullptr) {
      CHECK(ncclCommDestroy(nothing) == ncclSuccess);
    }
    CHECK(ncclCommDestroy(part) == ncclSuccess);
  });
}

TEST_CASE("emulated NCCL: memory is registered, calls fail as wanted, and two ranks on one device are refused") {
  const watchdog dog("emulated NCCL: the rest");
  with_ranks(1, [](rank_of_test& own) {
    void *memory = nullptr, *registration = nullptr;
    CHECK(ncclMemAlloc(&memory, 64) == ncclSuccess);
    CHECK(ncclCommRegister(own.world, memory, 64, &registration) == ncclSuccess);
    CHECK(emulated::live().registrations == 1);
    CHECK(ncclCommRegister(own.world, memory, 65, &registration) == ncclInvalidArgument);
    CHECK(ncclCommDeregister(own.world, registration) == ncclSuccess);
    CHECK(ncclCommDeregister(own.world, registration) == ncclInvalidArgument);
    CHECK(ncclMemFree(memory) == ncclSuccess);

    emulated::fail_call("ncclAllReduce", 2, ncclInternalError);
    const auto reduce = [&] { return ncclAllReduce(own.in, own.out, 1, ncclInt32, ncclSum, own.world, own.stream); };
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(reduce() == ncclSuccess);
    CHECK(reduce() == ncclInternalError);
    CHECK(ncclGroupEnd() == ncclInternalError);  // and none of the group was launched
    CHECK(cudaStreamQuery(own.stream) == cudaSuccess);
    CHECK(reduce() == ncclSuccess);
  });
  const emulated::session session;
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      ncclComm_t made = nullptr;
      CHECK(ncclCommInitRank(&made, 2, id, rank) == ncclInvalidUsage);
      CHECK(std::string(ncclGetLastError(made)) == "two ranks use the same device");
      CHECK(ncclCommAbort(made) == ncclSuccess);
    });
  }
  for (std::thread& each : ranks) {
    each.join();
  }
}
