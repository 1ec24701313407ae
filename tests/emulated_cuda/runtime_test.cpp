// The emulated CUDA runtime: what the host may rely on, and what it may not.
#include "tests/emulated_cuda/control.hpp"

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/guarded_memory.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace emulated = emulated_cuda;
using gradweave::testing::watchdog;

namespace {

cudaStream_t make_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&stream, flags) == cudaSuccess);
  return stream;
}

cudaEvent_t make_event(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, flags) == cudaSuccess);
  return event;
}

template <class T>
T* device_array(std::size_t count) {
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess);
  return static_cast<T*>(memory);
}

/// Appends a number to a list when a stream gets there.
struct note {
  std::vector<int>* list;
  int number;
};

void append(void* data) {
  const auto* const it = static_cast<const note*>(data);
  it->list->push_back(it->number);
}

std::size_t threads() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

/// Mappings of emulated device memory in this process.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count += line.find("emulated device memory") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("emulated runtime: a stream keeps order, and the host goes ahead of it") {
  const watchdog dog("emulated runtime: order");
  const emulated::session session;
  const cudaStream_t stream = make_stream();
  std::vector<int> seen;
  note notes[] = {{&seen, 0}, {&seen, 1}, {&seen, 2}};
  emulated::hold(stream);
  for (note& each : notes) {
    REQUIRE(cudaLaunchHostFunc(stream, append, &each) == cudaSuccess);
  }
  CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);  // "not ready" is no error
  emulated::release(stream);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(seen == std::vector<int>{0, 1, 2});
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("emulated runtime: between streams only events order, each as it was recorded when waited for") {
  const watchdog dog("emulated runtime: events");
  const emulated::session session;
  const cudaStream_t first = make_stream(), second = make_stream(), third = make_stream();
  const cudaEvent_t event = make_event();
  std::vector<int> ordered, unordered;
  note notes[] = {{&ordered, 1}, {&ordered, 2}, {&unordered, 3}};
  CHECK(cudaEventQuery(event) == cudaSuccess);  // never recorded
  emulated::hold(first);
  CHECK(cudaLaunchHostFunc(first, append, &notes[0]) == cudaSuccess);
  CHECK(cudaEventRecord(event, first) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(second, event, 0) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(second, append, &notes[1]) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(third, append, &notes[2]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(third) == cudaSuccess);  // waits for nobody
  CHECK(unordered == std::vector<int>{3});
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(cudaEventRecord(event, third) == cudaSuccess);  // second still waits for the first record
  CHECK(cudaEventSynchronize(event) == cudaSuccess);
  CHECK(cudaStreamQuery(second) == cudaErrorNotReady);
  emulated::release(first);
  CHECK(cudaStreamSynchronize(second) == cudaSuccess);
  CHECK(ordered == std::vector<int>{1, 2});
}

TEST_CASE("emulated runtime: streams overtake each other where they are shuffled") {
  const watchdog dog("emulated runtime: shuffle");
  bool overtaken[2] = {};
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const emulated::session session;
    emulated::shuffle(seed);
    const cudaStream_t streams[] = {make_stream(), make_stream()};
    std::atomic<int> order = -1;
    struct claim {
      std::atomic<int>* order;
      int own;
    } claims[] = {{&order, 0}, {&order, 1}};
    for (int i = 0; i < 2; ++i) {
      cudaLaunchHostFunc(
          streams[i],
          [](void* data) {
            auto* const it = static_cast<claim*>(data);
            int nobody = -1;
            it->order->compare_exchange_strong(nobody, it->own);
          },
          &claims[i]);
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    overtaken[order] = true;
  }
  CHECK(overtaken[0]);
  CHECK(overtaken[1]);
}

TEST_CASE("emulated runtime: the default stream waits for those that are not non-blocking, and they for it") {
  const watchdog dog("emulated runtime: default stream");
  const emulated::session session;
  const cudaStream_t blocking = make_stream(cudaStreamDefault), free = make_stream();
  std::vector<int> seen;
  note notes[] = {{&seen, 1}, {&seen, 2}, {&seen, 3}};
  emulated::hold(blocking);
  CHECK(cudaLaunchHostFunc(blocking, append, &notes[0]) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(nullptr, append, &notes[1]) == cudaSuccess);
  CHECK(cudaLaunchHostFunc(blocking, append, &notes[2]) == cudaSuccess);
  CHECK(cudaStreamSynchronize(free) == cudaSuccess);
  CHECK(cudaStreamQuery(nullptr) == cudaErrorNotReady);
  emulated::release(blocking);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(seen == std::vector<int>{1, 2, 3});
}

TEST_CASE("emulated runtime: the host can't touch device memory, and copies move it") {
  const watchdog dog("emulated runtime: memory");
  const auto touch = [](bool writes, bool touches) {
    const emulated::session session;
    volatile int* const memory = device_array<int>(100);
    if (touches && writes) {
      memory[7] = 1;
    }
    return touches && !writes ? memory[7] : 0;
  };
  using gradweave::testing::survives;
  CHECK(survives([&] { touch(false, false); }));
  CHECK(!survives([&] { touch(true, true); }));
  CHECK(!survives([&] { static_cast<void>(touch(false, true)); }));

  const emulated::session session;
  int* const first = device_array<int>(100);
  int* const second = device_array<int>(100);
  std::vector<int> values(100), seen(100);
  for (int i = 0; i < 100; ++i) {
    values[static_cast<std::size_t>(i)] = i;
  }
  const cudaStream_t stream = make_stream();
  CHECK(cudaMemcpyAsync(first, values.data(), 400, cudaMemcpyHostToDevice, stream) == cudaSuccess);
  CHECK(cudaMemsetAsync(first + 90, 0, 40, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(second, first, 400, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
  CHECK(cudaMemcpyAsync(seen.data(), second, 400, cudaMemcpyDefault, stream) == cudaSuccess);
  CHECK(seen[89] == 89);  // pageable memory is written when the call returns
  CHECK(seen[90] == 0);
  CHECK(cudaMemcpy(first, values.data(), 404, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaMemcpy(values.data(), first, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaFree(first + 1) == cudaErrorInvalidValue);
}

TEST_CASE("emulated runtime: pinned memory is read when the stream gets there, pageable memory now or later") {
  const watchdog dog("emulated runtime: pinned memory");
  const emulated::session session;
  const cudaStream_t stream = make_stream();
  int* const device = device_array<int>(1);
  void* pinned = nullptr;
  REQUIRE(cudaMallocHost(&pinned, sizeof(int)) == cudaSuccess);
  auto* const value = static_cast<int*>(pinned);
  *value = 1;
  emulated::hold(stream);
  CHECK(cudaMemcpyAsync(device, value, sizeof(int), cudaMemcpyHostToDevice, stream) == cudaSuccess);
  *value = 2;  // too early: the stream has not read it
  emulated::release(stream);
  int seen = 0;
  CHECK(cudaMemcpyAsync(&seen, device, sizeof(int), cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  CHECK(seen == 2);

  std::vector<int> registered(10);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, registered.data()) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaHostRegister(registered.data(), 40, cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(registered.data() + 5, 4, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  CHECK(cudaPointerGetAttributes(&attributes, registered.data() + 3) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  CHECK(cudaPointerGetAttributes(&attributes, device) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  CHECK(attributes.hostPointer == nullptr);
  CHECK(cudaHostUnregister(registered.data()) == cudaSuccess);
  CHECK(cudaHostUnregister(registered.data()) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("emulated runtime: time is measured by events that are made for it") {
  const watchdog dog("emulated runtime: time");
  const emulated::session session;
  const cudaStream_t stream = make_stream();
  const cudaEvent_t begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault), untimed = make_event();
  emulated::delay(stream, std::chrono::milliseconds(2));
  CHECK(cudaEventRecord(begin, stream) == cudaSuccess);
  CHECK(cudaEventRecord(end, stream) == cudaSuccess);
  CHECK(cudaEventRecord(untimed, stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  CHECK(milliseconds >= 2);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, untimed) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("emulated runtime: the n-th call fails, a device breaks, and host functions may not call CUDA") {
  const watchdog dog("emulated runtime: faults");
  const emulated::session session(2);
  emulated::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 1) == cudaSuccess);
  CHECK(cudaMalloc(&memory, 1) == cudaErrorMemoryAllocation);
  CHECK(cudaPeekAtLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaMalloc(&memory, 1) == cudaSuccess);

  const cudaStream_t stream = make_stream();
  cudaError_t within = cudaSuccess;
  const auto query = [](void* data) { *static_cast<cudaError_t*>(data) = cudaStreamQuery(nullptr); };
  CHECK(cudaLaunchHostFunc(stream, query, &within) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(within == cudaErrorNotPermitted);

  emulated::hold(stream);
  CHECK(cudaMemsetAsync(memory, 0, 1, stream) == cudaSuccess);
  std::thread breaker([] { emulated::break_device(0, cudaErrorIllegalAddress); });
  CHECK(cudaStreamSynchronize(stream) == cudaErrorIllegalAddress);  // whoever waits is told
  breaker.join();
  CHECK(cudaFree(memory) == cudaErrorIllegalAddress);
  CHECK(std::string(cudaGetErrorString(cudaErrorIllegalAddress)) == "an illegal memory access was encountered");
  std::thread([] {
    CHECK(cudaSetDevice(1) == cudaErrorIllegalAddress);  // device 0 is current in a new thread
  }).join();
  CHECK(cudaSetDevice(2) == cudaErrorIllegalAddress);
}

TEST_CASE("emulated runtime: a session leaves no thread and no mapping, whatever hangs") {
  const watchdog dog("emulated runtime: end of a session");
  const std::size_t threads_before = threads();
  {
    const emulated::session session;
    CHECK(emulated::live() == emulated::live_counts{});
    const cudaStream_t stream = make_stream(), other = make_stream();
    const cudaEvent_t event = make_event();
    device_array<int>(1000);
    emulated::hold(stream);
    CHECK(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
    CHECK(threads() == threads_before + 2);
    CHECK(mappings() == 2);
    CHECK(emulated::to_string(emulated::live()) == "2 streams, 1 event, 1 device allocation");
  }
  CHECK(threads() == threads_before);
  CHECK(mappings() == 0);
}
