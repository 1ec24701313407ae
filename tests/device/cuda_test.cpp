// On the emulated runtime: shows order, ownership and errors, and nothing of a device.
#include <gradweave/device/cuda.hpp>

#include <cstddef>
#include <string>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/emulated_cuda/control.hpp"
#include "tests/emulated_cuda/kernels.hpp"

using namespace gradweave;
using tested = device::cuda<emulated_cuda::kernels>;

static_assert(explain_stream_device<tested>());

TEST_CASE("device::cuda: events order streams, copies come to pinned memory, and everything is given back") {
  const testing::watchdog guard("device::cuda");
  const emulated_cuda::session session;
  {
    const tested device(device::cuda_options{.device = 1});
    int current = -1;
    CHECK(cudaGetDevice(&current) == cudaSuccess);
    CHECK(current == 0);
    auto first = device.make_stream(), second = device.make_stream();
    auto held = device.make_event(), end = device.make_event();
    auto pinned = device.allocate_pinned(4);
    CHECK(device.is_reached(end));  // never recorded
    device.enter();
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
    REQUIRE(cudaMemset(memory, 7, 4) == cudaSuccess);
    REQUIRE(cudaStreamSynchronize(nullptr) == cudaSuccess);  // streams that do not block pass by the default one

    emulated_cuda::hold(first.get());
    device.record(held, first.get());
    device.wait(second.get(), held);
    device.copy_to_host(second.get(), pinned.data(), static_cast<const std::byte*>(memory), 4);
    device.record(end, second.get());
    CHECK_FALSE(device.is_reached(end));
    CHECK(cudaGetLastError() == cudaSuccess);
    emulated_cuda::release(first.get());
    device.synchronize(second.get());
    CHECK(device.is_reached(end));
    CHECK(pinned.data()[3] == std::byte{7});
    CHECK(cudaFree(memory) == cudaSuccess);
  }
  CHECK(emulated_cuda::to_string(emulated_cuda::live()) == "");
}

TEST_CASE("device::cuda: a call that fails is told in CUDA's words") {
  const testing::watchdog guard("device::cuda errors");
  const emulated_cuda::session session;
  const tested device;
  auto event = device.make_event();
  emulated_cuda::fail_call("cudaEventQuery", 1, cudaErrorIllegalAddress);
  std::string told;
  try {
    static_cast<void>(device.is_reached(event));
  } catch (const sync_error& error) {
    told = error.what();
  }
  CHECK(told.find("cudaErrorIllegalAddress") != std::string::npos);
  CHECK_THROWS_AS(tested(device::cuda_options{.device = 99}), sync_error);
}
