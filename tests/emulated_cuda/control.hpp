/// @file
/// What tests tell the emulated device: a library that stands in at link time for the CUDA runtime and NCCL, with their own
/// headers. It is no GPU and shows nothing about one: it shows whether host code orders, waits, cleans up and reports as the
/// interfaces demand. Ranks are threads, a device each.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated_cuda {

/// The emulation from here to the end of the scope, in its initial state: eight devices, no faults. Its end stops all streams,
/// also those that wait for what never comes, joins their threads and unmaps all memory. One at a time; no thread but the one
/// that ends it may use CUDA or NCCL then.
class session {
 public:
  explicit session(int devices = 8);
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();
};

/// What a program has created and not given back.
struct live_counts {
  std::size_t streams = 0;  ///< and threads, but for those of default streams
  std::size_t events = 0;
  std::size_t device_allocations = 0;
  std::size_t pinned_ranges = 0;
  std::size_t communicators = 0;
  std::size_t registrations = 0;  ///< ncclCommRegister

  friend bool operator==(const live_counts&, const live_counts&) = default;
};
live_counts live();

/// "2 streams, 1 event", for messages; empty where there is nothing.
std::string to_string(const live_counts& counts);

/// The host's address of device memory, which only what runs on a stream should use; of other memory the address itself.
void* alias(const void* pointer);

template <class T>
T* alias_of(T* pointer) {
  return static_cast<T*>(alias(pointer));
}

/// Whether the host may touch device memory that is allocated from now on. For code of kernels that runs on the host.
void open_memory(bool opens);

// ---- time and order -------------------------------------------------------------------------------------------------

/// From now on the stream begins no operation, until it is released.
void hold(cudaStream_t stream);
void release(cudaStream_t stream);

/// A pause before each operation of the stream.
void delay(cudaStream_t stream, std::chrono::microseconds pause);

/// Streams pause at random from now on, so that what events do not order happens in other orders; copies from pageable
/// memory read it now or later, as CUDA may. The choices follow from the seed; 0 ends it.
void shuffle(std::uint64_t seed);

/// Waits until no stream can get further, and says whether all have come to their end: false is a deadlock, or a stream that
/// is held. No other thread may enqueue meanwhile.
bool settle();

// ---- faults ---------------------------------------------------------------------------------------------------------

/// The n-th call from now on (1: the next) of the function of that name does nothing but return `code`. Calls are counted over
/// all threads.
void fail_call(const std::string& function, std::uint64_t n, cudaError_t code);
void fail_call(const std::string& function, std::uint64_t n, ncclResult_t code);

/// From now on each CUDA call on that device returns `code`, as after an illegal access.
void break_device(int device, cudaError_t code);

/// What a communicator that is not blocking starts takes so many calls of ncclCommGetAsyncError: a launch that nobody polls for
/// never gets to its stream. 0, the default: it starts at once.
void set_progress_polls(int polls);

/// What ncclGetVersion says, as where a program runs with another library than it was compiled for.
void set_nccl_version(int code);

/// Whether others see ncclRemoteError where a rank is dropped, or nothing at all.
enum class notice : std::uint8_t { none, remote_error };

/// As if the rank's process had ended: nothing of it reaches another rank any more, and its own streams get on.
void drop(ncclComm_t communicator, notice others);

/// The same of all communicators on a device.
void drop_device(int device, notice others);

}  // namespace emulated_cuda
