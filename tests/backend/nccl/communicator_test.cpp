#include <gradweave/backend/nccl/communicator.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/emulated_cuda/control.hpp"

namespace emulated = emulated_cuda;
using gradweave::errc;
using gradweave::sync_error;
using gradweave::detail::nccl_communicator;
using gradweave::testing::watchdog;

namespace {

/// Communicators of so many ranks, by rank; on one thread, since none blocks.
std::vector<std::unique_ptr<nccl_communicator>> make(int size, std::chrono::milliseconds timeout) {
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::unique_ptr<nccl_communicator>> all;
  for (int rank = 0; rank < size; ++rank) {
    all.push_back(std::make_unique<nccl_communicator>(rank, timeout));
    all.back()->begin_set_up(id, size, rank);
    CHECK(all.back()->is_set_up(std::chrono::milliseconds(0)) == (rank + 1 == size));
  }
  for (const auto& each : all) {
    CHECK(each->is_set_up(std::chrono::seconds(10)));
  }
  return all;
}

errc told(nccl_communicator& one, auto&& body) {
  try {
    one.call("the call", body);
  } catch (const sync_error& error) {
    return error.cause().code;
  }
  return errc{};
}

/// One rank's part of a collective that others do not enter.
ncclResult_t sum_alone(ncclComm_t communicator, void* memory, cudaStream_t on) {
  return ncclAllReduce(memory, memory, 4, ncclFloat32, ncclSum, communicator, on);
}

}  // namespace

TEST_CASE("nccl communicator: a call returns once it has begun, and gives up what never does") {
  const watchdog dog("nccl communicator: calls");
  const emulated::session session;
  auto ranks = make(2, std::chrono::milliseconds(30));
  void* memory = nullptr;
  cudaStream_t on = nullptr;
  CHECK(cudaMalloc(&memory, 64) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking) == cudaSuccess);
  const auto sum = [&](ncclComm_t communicator) { return sum_alone(communicator, memory, on); };
  emulated::set_progress_polls(5);
  CHECK(told(*ranks[0], sum) == errc{});
  CHECK(cudaStreamQuery(on) == cudaErrorNotReady);  // it is on the stream
  emulated::set_progress_polls(1 << 30);
  CHECK(told(*ranks[0], sum) == errc::timed_out);
  ranks[0]->check();
  ranks[0]->flag();
  CHECK_THROWS_AS(ranks[0]->check(), sync_error);
  CHECK(told(*ranks[0], sum) == errc::aborted);
  ranks[0]->abort();
  CHECK(cudaStreamSynchronize(on) == cudaSuccess);
  CHECK(emulated::live().communicators == 1);
}

TEST_CASE("nccl communicator: an abort fetches out who polls") {
  const watchdog dog("nccl communicator: abort");
  const emulated::session session;
  auto ranks = make(1, std::chrono::minutes(10));
  emulated::set_progress_polls(1 << 30);
  std::atomic<bool> is_inside{false};
  std::thread beside([&] {
    CHECK(told(*ranks[0], [&](ncclComm_t) {
            is_inside = true;
            return ncclInProgress;  // as NCCL says where a peer has to be met first
          }) == (errc{}));          // what it asks for is over at once
    CHECK(told(*ranks[0], [&](ncclComm_t communicator) {
            void* memory = nullptr;
            CHECK(cudaMalloc(&memory, 64) == cudaSuccess);
            return sum_alone(communicator, memory, nullptr);
          }) == errc::aborted);
  });
  while (!is_inside) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  ranks[0]->flag();
  ranks[0]->abort();
  beside.join();
  CHECK(emulated::live().communicators == 0);
}

TEST_CASE("nccl communicator: at its end it is finalized, or aborted where its collectives can't end") {
  const watchdog dog("nccl communicator: end");
  const emulated::session session;
  auto ranks = make(2, std::chrono::milliseconds(30));
  void* memory = nullptr;
  cudaStream_t on = nullptr;
  CHECK(cudaMalloc(&memory, 64) == cudaSuccess);
  CHECK(cudaStreamCreateWithFlags(&on, cudaStreamNonBlocking) == cudaSuccess);
  ranks[0]->call("ncclAllReduce", [&](ncclComm_t communicator) { return sum_alone(communicator, memory, on); });
  emulated::fail_call("ncclCommDestroy", 1, ncclInternalError);
  ranks[1].reset();
  CHECK(emulated::live().communicators == 2);  // it was to be destroyed, which the test refused
  ranks[0].reset();                            // destroyed, it would wait for ever
  CHECK(emulated::live().communicators == 1);
  CHECK(cudaStreamSynchronize(on) == cudaSuccess);
}
