/// @file
/// The emulation's state: devices, streams, events, memory, and the faults that a test asked for. One mutex guards all of it:
/// what is emulated is order, not speed.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/control.hpp"

namespace emulated_cuda::detail {

struct stream_state;

/// A place in a stream: reached when so many of its operations are over.
struct point {
  std::shared_ptr<stream_state> stream;
  std::uint64_t number = 0;

  bool is_reached() const;
};

struct operation {
  std::vector<point> after;
  std::function<void()> work;  ///< runs without the lock
};

struct stream_state {
  int device = 0;
  unsigned flags = cudaStreamDefault;
  int priority = 0;
  std::uint64_t id = 0;
  std::deque<operation> queue;
  std::uint64_t enqueued = 0, completed = 0;
  bool held = false, closing = false, ended = false;
  std::uint64_t seen = 0;    ///< the version at which it last found that it can't get further; 0 while it gets on
  std::uint64_t ticket = 0;  ///< of the kernel of NCCL's for which it waits until the device has room
  std::chrono::microseconds pause{0};
  std::thread thread;

  bool waits_for_default_stream() const { return (flags & cudaStreamNonBlocking) == 0; }
};

inline bool point::is_reached() const { return stream == nullptr || stream->completed >= number; }

struct event_state {
  bool is_timed = true;
  point last;
  std::shared_ptr<std::optional<std::chrono::steady_clock::time_point>> when;
};

/// Memory that the emulation knows: of a device, with its alias, or of the host.
struct allocation {
  std::size_t bytes = 0;
  std::size_t mapped_bytes = 0;
  std::byte* alias = nullptr;
  int device = 0;
  enum class sort { device, pinned, registered } is = sort::device;
};

struct device_state {
  std::shared_ptr<stream_state> default_stream;
  cudaError_t broken = cudaSuccess;
  bool is_occupied = false;                                        ///< by a kernel of NCCL's
  std::map<std::uint64_t, std::shared_ptr<stream_state>> kernels;  ///< NCCL's, in the order in which they were launched

  /// Whether a kernel that has the device's turn may start: of those whose streams have got to them, or may yet, the first.
  bool has_room_for(std::uint64_t ticket, std::uint64_t version) const {
    return !is_occupied && std::none_of(kernels.begin(), kernels.lower_bound(ticket), [&](const auto& earlier) {
      return earlier.second->seen != version || earlier.second->ticket == earlier.first;
    });
  }
};

struct armed_fault {
  std::string function;
  std::uint64_t calls_until = 0;
  int code = 0;
};

class machine {
 public:
  static machine& get();

  void begin(int devices);
  void end();

  // All of these are called with the lock.
  point enqueue(const std::shared_ptr<stream_state>& stream, std::function<void()> work, std::vector<point> after = {});
  std::shared_ptr<stream_state> find_stream(cudaStream_t handle, int device);
  std::shared_ptr<stream_state> open_stream(int device, unsigned flags, int priority);
  void close_stream(const std::shared_ptr<stream_state>& stream);
  std::vector<point> tails(int device, bool all) const;
  std::map<std::uintptr_t, allocation>::iterator find_memory(const void* pointer);
  std::byte* map_memory(std::size_t bytes, int device);
  void unmap(std::map<std::uintptr_t, allocation>::iterator found);

  /// Whether [pointer, pointer + bytes) lies in one allocation, or in memory that the emulation does not know.
  bool is_in_bounds(const void* pointer, std::size_t bytes);
  std::byte* to_alias(const void* pointer);

  /// The code that a test wants this call to return, or 0.
  int injected(const char* function);

  std::uint64_t random(std::uint64_t stream, std::uint64_t number) const;

  /// To be called after each change that someone may wait for.
  void notify() {
    ++version;
    changed.notify_all();
    quiet.notify_all();
  }

  /// Waits on a stream's thread, so that settle() knows of it.
  template <class Condition>
  void wait_on(stream_state& stream, std::unique_lock<std::mutex>& lock, Condition&& condition) {
    if (!condition()) {
      ++version;  // that it stopped is news to those who let it go first
      while (!condition()) {
        if (stream.seen != version) {
          stream.seen = version;
          changed.notify_all();
          quiet.notify_all();
        }
        changed.wait(lock);
      }
    }
    stream.seen = 0;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::condition_variable quiet;  ///< a stream found that it can't get further
  std::uint64_t version = 1;
  bool is_stopping = false;
  std::vector<device_state> devices;
  std::map<cudaStream_t, std::shared_ptr<stream_state>> streams;
  std::map<cudaEvent_t, std::shared_ptr<event_state>> events;
  std::map<std::uintptr_t, allocation> memory;
  std::vector<armed_fault> faults;
  std::uint64_t seed = 0;
  int progress_polls = 0;
  int nccl_version = NCCL_VERSION_CODE;
  bool opens_memory = false;

 private:
  void run(const std::shared_ptr<stream_state>& stream);
  void join_ended();

  std::uint64_t next_id_ = 1;
  std::vector<std::shared_ptr<stream_state>> retired_;
};

/// The stream whose thread this is.
inline thread_local stream_state* own_stream = nullptr;
/// True while this thread runs a host function of a stream, where CUDA may not be called.
inline thread_local bool is_in_host_function = false;
inline thread_local int current_device = 0;
inline thread_local cudaError_t last_error = cudaSuccess;

/// NCCL's part of a session's end and of live().
void forget_communicators();
void count_communicators(live_counts& counts);

}  // namespace emulated_cuda::detail
