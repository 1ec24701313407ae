// NCCL's C interface over the emulated machine. A collective occupies its stream, and its device, until all ranks have come; one
// that some rank does not join, or joins with something else, stays there until its communicator is aborted.
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/machine.hpp"
#include "tests/emulated_cuda/world.hpp"

using emulated_cuda::detail::allocation;
using emulated_cuda::detail::call_signature;
using emulated_cuda::detail::call_sort;
using emulated_cuda::detail::current_device;
using emulated_cuda::detail::is_in_host_function;
using emulated_cuda::detail::machine;
using emulated_cuda::detail::point;
using emulated_cuda::detail::posted;
using emulated_cuda::detail::posted_call;
using emulated_cuda::detail::split_meeting;
using emulated_cuda::detail::stream_state;
using emulated_cuda::detail::type_bytes;
using emulated_cuda::detail::world;

/// What the header leaves open.
struct ncclComm {
  std::shared_ptr<world> ranks;
  int rank = 0;
  int device = 0;
  bool is_blocking = true;
  bool is_ready = false;  ///< set-up was seen to be over
  bool is_over = false;   ///< aborted or dropped: kernels leave
  int polls_left = 0;
  int kernels = 0;  ///< on their way
  int running = 0;  ///< of those, how many a stream has got to
  bool is_finalizing = false;
  ncclResult_t error = ncclSuccess;
  std::uint64_t splits = 0;
  split_meeting* splitting = nullptr;
  std::vector<std::function<void()>> waiting;  ///< launches that were answered with ncclInProgress
  std::map<void*, std::size_t> registrations;
};

namespace {

using lock_type = std::unique_lock<std::mutex>;
using communicator = std::shared_ptr<ncclComm>;

/// All of it guarded by the machine's mutex.
struct communicators {
  std::map<ncclComm_t, communicator> open;
  std::map<std::uint64_t, std::shared_ptr<world>> worlds;  // by unique id, until complete
  std::uint64_t next_id = 1;

  static communicators& get() {
    static communicators only;
    return only;
  }
};

thread_local std::string last_text;

ncclResult_t refused(ncclResult_t code, const char* why) {
  last_text = why;
  return code;
}

/// Does what each call does first.
template <class Body>
ncclResult_t call(const char* function, Body&& body) {
  if (is_in_host_function) {
    return refused(ncclInvalidUsage, "called from a host function of a stream");
  }
  machine& all = machine::get();
  lock_type lock(all.mutex);
  if (all.devices.empty()) {
    return refused(ncclUnhandledCudaError, "there is no device");
  }
  if (const int code = all.injected(function); code != 0) {
    return refused(static_cast<ncclResult_t>(code), "as the test wanted");
  }
  return body(all, lock);
}

/// As call(), with a communicator that must exist.
template <class Body>
ncclResult_t call_of(const char* function, ncclComm_t handle, Body&& body) {
  return call(function, [&](machine& all, lock_type& lock) {
    const auto found = communicators::get().open.find(handle);
    if (found == communicators::get().open.end()) {
      return refused(ncclInvalidArgument, "no such communicator");
    }
    return body(all, lock, communicator(found->second));
  });
}

/// Whether something that was answered with ncclInProgress still is.
bool is_in_progress(const ncclComm& it) {
  return !it.is_ready || !it.waiting.empty() || (it.is_finalizing && it.kernels > 0) ||
         (it.splitting != nullptr && !it.splitting->is_done);
}

/// Until then it may be asked how far it is, and no more.
ncclResult_t check_usable(const ncclComm& it) {
  if (it.error != ncclSuccess) {
    return refused(it.error, "the communicator has failed");
  }
  return is_in_progress(it) ? refused(ncclInvalidArgument, "used before the previous operation returned ncclSuccess")
                            : ncclSuccess;
}

// ---- set-up ---------------------------------------------------------------------------------------------------------

/// Adds a rank to a world. Two ranks on one device are refused, all of them.
communicator join(const std::shared_ptr<world>& ranks, int rank, int device, bool is_blocking, int polls) {
  auto made = std::make_shared<ncclComm>();
  made->ranks = ranks;
  made->rank = rank;
  made->device = device;
  made->is_blocking = is_blocking;
  made->polls_left = polls;
  for (const ncclComm_t other : ranks->members) {
    ranks->is_refused = ranks->is_refused || (other != nullptr && other->device == device);
  }
  ranks->members[static_cast<std::size_t>(rank)] = made.get();
  ++ranks->joined;
  communicators::get().open[made.get()] = made;
  return made;
}

/// Waits until all ranks have joined, where a communicator is blocking.
ncclResult_t complete(machine& all, lock_type& lock, const communicator& it) {
  all.notify();
  if (!it->is_blocking) {
    return ncclInProgress;
  }
  all.changed.wait(lock, [&] { return all.is_stopping || it->is_over || it->ranks->is_complete(); });
  if (all.is_stopping || it->is_over) {
    return refused(ncclSystemError, "ended while ranks were missing");
  }
  if (it->ranks->is_refused) {
    it->error = ncclInvalidUsage;
    return refused(ncclInvalidUsage, "two ranks use the same device");
  }
  it->is_ready = true;
  return ncclSuccess;
}

// ---- groups ---------------------------------------------------------------------------------------------------------

struct grouped_call {
  communicator by;
  std::shared_ptr<stream_state> stream;
  posted part;
};

thread_local int group_depth = 0;
thread_local std::vector<grouped_call> group_calls;
thread_local std::vector<communicator> group_joins;
thread_local ncclResult_t group_error = ncclSuccess;

/// Runs on a stream: all parts at once, as one kernel does.
void run_kernel(const communicator& by, const std::vector<posted>& parts, std::uint64_t ticket) {
  machine& all = machine::get();
  stream_state& stream = *emulated_cuda::detail::own_stream;
  lock_type lock(all.mutex);
  auto& device = all.devices[static_cast<std::size_t>(by->device)];
  const auto is_over = [&] { return all.is_stopping || by->is_over || device.broken != cudaSuccess; };
  ++by->running;
  stream.ticket = ticket;
  all.wait_on(stream, lock, [&] { return is_over() || device.has_room_for(ticket, all.version); });
  stream.ticket = 0;
  if (!is_over()) {
    device.is_occupied = true;
    for (const posted& part : parts) {
      by->ranks->post(by->rank, part);
    }
    all.notify();
    all.wait_on(stream, lock, [&] {
      return is_over() || std::all_of(parts.begin(), parts.end(), [](const posted& each) { return each->is_done; });
    });
    device.is_occupied = false;
  }
  for (const posted& part : parts) {
    part->is_cancelled = !part->is_done;
  }
  device.kernels.erase(ticket);
  --by->running;
  --by->kernels;
  all.notify();
}

/// Puts one kernel on the streams that its calls name: it runs on the first, after what all of them hold, and they go on after it.
void launch(machine& all, const communicator& by, const std::vector<grouped_call>& calls) {
  std::vector<posted> parts;
  std::vector<std::shared_ptr<stream_state>> others;
  const std::shared_ptr<stream_state> first = calls.front().stream;
  for (const grouped_call& each : calls) {
    parts.push_back(each.part);
    if (each.stream != first && std::find(others.begin(), others.end(), each.stream) == others.end()) {
      others.push_back(each.stream);
    }
  }
  std::vector<point> after;
  for (const auto& other : others) {
    after.push_back({other, other->enqueued});
  }
  auto& kernels = all.devices[static_cast<std::size_t>(by->device)].kernels;
  const std::uint64_t ticket = kernels.empty() ? 1 : kernels.rbegin()->first + 1;
  kernels[ticket] = first;
  const point kernel = all.enqueue(first, [by, parts, ticket] { run_kernel(by, parts, ticket); }, std::move(after));
  for (const auto& other : others) {
    all.enqueue(other, {}, {kernel});
  }
}

ncclResult_t launch_or_wait(machine& all, const communicator& by, std::vector<grouped_call> calls) {
  ++by->kernels;
  if (by->is_blocking || all.progress_polls == 0) {
    launch(all, by, calls);
    return ncclSuccess;
  }
  by->polls_left = all.progress_polls;
  by->waiting.push_back(
      [&all, by = by.get(), calls = std::move(calls)] { launch(all, communicators::get().open.at(by), calls); });
  return ncclInProgress;
}

ncclResult_t end_group(machine& all, lock_type& lock) {
  const ncclResult_t error = std::exchange(group_error, ncclSuccess);
  auto calls = std::exchange(group_calls, {});
  const auto joins = std::exchange(group_joins, {});
  if (error != ncclSuccess) {
    return error;
  }
  ncclResult_t result = ncclSuccess;
  for (const communicator& each : joins) {
    const ncclResult_t joined = complete(all, lock, each);
    result = joined == ncclSuccess ? result : joined;
  }
  while (!calls.empty()) {
    const communicator by = calls.front().by;
    const auto rest =
        std::stable_partition(calls.begin(), calls.end(), [&](const auto& each) { return each.by == by; });
    const ncclResult_t launched = launch_or_wait(all, by, {calls.begin(), rest});
    result = launched == ncclSuccess ? result : launched;
    calls.erase(calls.begin(), rest);
  }
  return result;
}

// ---- collectives ----------------------------------------------------------------------------------------------------

/// Where a call reads and writes, in elements.
struct buffers {
  const void* from = nullptr;
  std::size_t from_elements = 0;
  void* to = nullptr;
  std::size_t to_elements = 0;
};

bool is_usable(machine& all, const void* pointer, std::size_t bytes) {
  return bytes == 0 || (all.find_memory(pointer) != all.memory.end() && all.is_in_bounds(pointer, bytes));
}

/// Checks a call and puts it into the group, which may be one of its own.
ncclResult_t post(const char* function, ncclComm_t handle, cudaStream_t stream_handle, call_signature signature,
                  const buffers& memory, int peer = 0) {
  const ncclResult_t result =
      call_of(function, handle, [&](machine& all, lock_type& lock, const communicator& by) -> ncclResult_t {
        if (const ncclResult_t usable = check_usable(*by); usable != ncclSuccess) {
          return usable;
        }
        if (by->is_finalizing) {
          return refused(ncclInvalidUsage, "the communicator is finalized");
        }
        if (all.devices[static_cast<std::size_t>(by->device)].broken != cudaSuccess) {
          return refused(ncclUnhandledCudaError, "the device is broken");
        }
        const auto stream = all.find_stream(stream_handle, by->device);
        if (stream == nullptr || stream->device != by->device) {
          return refused(ncclInvalidArgument, "the stream is not one of the communicator's device");
        }
        const bool names_rank =
            signature.root >= 0 && signature.root < by->ranks->size() && peer >= 0 && peer < by->ranks->size();
        if (!names_rank || signature.type < 0 || signature.type >= ncclNumTypes || signature.operation < 0 ||
            signature.operation >= ncclNumOps) {
          return refused(ncclInvalidArgument, "no such rank, type or operation");
        }
        const std::size_t size = type_bytes(signature.type);
        if (!is_usable(all, memory.from, memory.from_elements * size) ||
            !is_usable(all, memory.to, memory.to_elements * size)) {
          return refused(ncclInvalidArgument, "a buffer is no device memory, or ends too early");
        }
        if (signature.count == 0) {
          return ncclSuccess;
        }
        auto part = std::make_shared<posted_call>();
        part->signature = signature;
        part->from = all.to_alias(memory.from);
        part->to = all.to_alias(memory.to);
        part->peer = peer;
        group_calls.push_back({by, stream, std::move(part)});
        return group_depth > 0 ? ncclSuccess : end_group(all, lock);
      });
  if (group_depth > 0 && result != ncclSuccess) {
    group_error = result;  // the group fails as a whole
  }
  return result;
}

std::size_t size_of(ncclComm_t handle) {
  machine& all = machine::get();
  lock_type lock(all.mutex);
  const auto found = communicators::get().open.find(handle);
  return found == communicators::get().open.end() ? 0 : found->second->ranks->members.size();
}

/// Kernels leave, and nobody touches the memory of this rank any more. Those that no stream has got to will find nothing to do.
void end_kernels(machine& all, lock_type& lock, const communicator& it) {
  it->is_over = true;
  it->kernels -= static_cast<int>(it->waiting.size());
  it->waiting.clear();
  all.notify();
  all.changed.wait(lock, [&] { return all.is_stopping || it->running == 0; });
}

void close(const communicator& it) {
  it->ranks->members[static_cast<std::size_t>(it->rank)] = nullptr;
  communicators::get().open.erase(it.get());
}

/// Makes the communicators of a split that all ranks have come to.
void split(split_meeting& meeting) {
  auto& wishes = meeting.wishes;
  std::stable_sort(wishes.begin(), wishes.end(), [](const auto& a, const auto& b) {
    return std::tie(a.color, a.key, a.rank) < std::tie(b.color, b.key, b.rank);
  });
  for (auto first = wishes.begin(); first != wishes.end();) {
    const auto last = std::find_if(first, wishes.end(), [&](const auto& each) { return each.color != first->color; });
    const auto ranks = std::make_shared<world>(static_cast<int>(last - first));
    for (int rank = 0; first != last; ++first, ++rank) {
      if (first->made != nullptr) {
        first->made->ranks = ranks;
        first->made->rank = rank;
        ranks->members[static_cast<std::size_t>(rank)] = first->made;
        ++ranks->joined;
      }
    }
  }
  meeting.is_done = true;
}

}  // namespace

namespace emulated_cuda {

namespace detail {

void forget_communicators() {
  communicators::get().open.clear();
  communicators::get().worlds.clear();
}

void count_communicators(live_counts& counts) {
  counts.communicators = communicators::get().open.size();
  for (const auto& [handle, each] : communicators::get().open) {
    counts.registrations += each->registrations.size();
  }
}

}  // namespace detail

void set_nccl_version(int code) {
  machine& all = machine::get();
  const lock_type lock(all.mutex);
  all.nccl_version = code;
}

void drop(ncclComm_t handle, notice others) {
  machine& all = machine::get();
  lock_type lock(all.mutex);
  const communicator it = communicators::get().open.at(handle);
  for (const ncclComm_t member : it->ranks->members) {
    if (member != nullptr && member != handle && others == notice::remote_error) {
      member->error = ncclRemoteError;
    }
  }
  end_kernels(all, lock, it);
}

void drop_device(int device, notice others) {
  std::vector<ncclComm_t> found;
  {
    machine& all = machine::get();
    const lock_type lock(all.mutex);
    for (const auto& [handle, each] : communicators::get().open) {
      if (each->device == device) {
        found.push_back(handle);
      }
    }
  }
  for (const ncclComm_t each : found) {
    drop(each, others);
  }
}

}  // namespace emulated_cuda

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  machine& all = machine::get();
  const lock_type lock(all.mutex);
  *version = all.nccl_version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError: return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
    default: return "unknown result code";
  }
}

const char* ncclGetLastError(ncclComm_t) { return last_text.c_str(); }

ncclResult_t ncclMemAlloc(void** pointer, std::size_t bytes) {
  const ncclResult_t allowed = call("ncclMemAlloc", [](machine&, lock_type&) { return ncclSuccess; });
  if (allowed != ncclSuccess) {
    return allowed;
  }
  return cudaMalloc(pointer, bytes) == cudaSuccess ? ncclSuccess : refused(ncclUnhandledCudaError, "cudaMalloc failed");
}

ncclResult_t ncclMemFree(void* pointer) {
  const ncclResult_t allowed = call("ncclMemFree", [](machine&, lock_type&) { return ncclSuccess; });
  if (allowed != ncclSuccess) {
    return allowed;
  }
  return cudaFree(pointer) == cudaSuccess ? ncclSuccess : refused(ncclUnhandledCudaError, "cudaFree failed");
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return call("ncclGetUniqueId", [&](machine&, lock_type&) {
    *id = {};
    const std::uint64_t number = communicators::get().next_id++;
    std::memcpy(id->internal, &number, sizeof(number));
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* handle, int count, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return call("ncclCommInitRankConfig", [&](machine& all, lock_type& lock) -> ncclResult_t {
    if (count < 1 || rank < 0 || rank >= count) {
      return refused(ncclInvalidArgument, "no such rank");
    }
    std::uint64_t number = 0;
    std::memcpy(&number, id.internal, sizeof(number));
    auto& expected = communicators::get().worlds[number];
    if (expected == nullptr) {
      expected = std::make_shared<world>(count);
    }
    const std::shared_ptr<world> ranks = expected;
    if (ranks->size() != count || ranks->members[static_cast<std::size_t>(rank)] != nullptr) {
      return refused(ncclInvalidUsage, "ranks disagree about their number, or one comes twice");
    }
    const bool is_blocking = config == nullptr || config->blocking != 0;
    const communicator made = join(ranks, rank, current_device, is_blocking, all.progress_polls);
    *handle = made.get();
    if (ranks->is_complete()) {
      communicators::get().worlds.erase(number);
    }
    if (group_depth > 0) {
      group_joins.push_back(made);
      return is_blocking ? ncclSuccess : ncclInProgress;
    }
    return complete(all, lock, made);
  });
}

ncclResult_t ncclCommInitRank(ncclComm_t* handle, int count, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(handle, count, id, rank, nullptr);
}

ncclResult_t ncclCommSplit(ncclComm_t handle, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return call_of("ncclCommSplit", handle, [&](machine& all, lock_type& lock, const communicator& by) -> ncclResult_t {
    if (const ncclResult_t usable = check_usable(*by); usable != ncclSuccess) {
      return usable;
    }
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
      return refused(ncclInvalidArgument, "a colour must not be negative");
    }
    *made = nullptr;
    if (color != NCCL_SPLIT_NOCOLOR) {
      auto child = std::make_shared<ncclComm>();
      child->ranks = std::make_shared<world>(1 << 10);  // never complete; the split replaces it
      child->device = by->device;
      child->is_blocking =
          config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? by->is_blocking : config->blocking != 0;
      child->polls_left = all.progress_polls;
      *made = child.get();
      communicators::get().open[child.get()] = child;
    }
    split_meeting& meeting = by->ranks->splits[by->splits++];
    meeting.wishes.push_back({by->rank, color, key, *made});
    if (meeting.wishes.size() == by->ranks->members.size()) {
      split(meeting);
      all.notify();
    }
    by->splitting = &meeting;
    if (!by->is_blocking) {
      return ncclInProgress;
    }
    all.changed.wait(lock, [&] { return all.is_stopping || by->is_over || meeting.is_done; });
    if (!meeting.is_done) {
      return refused(ncclSystemError, "ended while ranks were missing");
    }
    if (*made != nullptr) {
      (*made)->is_ready = (*made)->is_blocking;
    }
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return call_of("ncclCommGetAsyncError", handle, [&](machine&, lock_type&, const communicator& it) {
    if (it->error == ncclSuccess && !it->is_ready && it->ranks->is_complete()) {
      it->error = it->ranks->is_refused ? ncclInvalidUsage : ncclSuccess;
      it->is_ready = it->polls_left-- <= 0;
    } else if (!it->waiting.empty() && it->polls_left-- <= 0) {
      for (const auto& launch : std::exchange(it->waiting, {})) {
        launch();
      }
    }
    *error = it->error != ncclSuccess ? it->error : is_in_progress(*it) ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
  });
}

/// What is on its way is waited for, or, where the communicator is not blocking, polled for.
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return call_of("ncclCommFinalize", handle,
                 [&](machine& all, lock_type& lock, const communicator& it) -> ncclResult_t {
                   if (const ncclResult_t usable = check_usable(*it); usable != ncclSuccess) {
                     return usable;
                   }
                   it->is_finalizing = true;
                   if (!it->is_blocking) {
                     return it->kernels == 0 ? ncclSuccess : ncclInProgress;
                   }
                   all.changed.wait(lock, [&] { return all.is_stopping || it->is_over || it->kernels == 0; });
                   return ncclSuccess;
                 });
}

/// Waits for its kernels: one that never ends keeps it.
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return call_of("ncclCommDestroy", handle, [&](machine& all, lock_type& lock, const communicator& it) {
    all.changed.wait(lock, [&] { return all.is_stopping || it->kernels == 0; });
    close(it);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return call_of("ncclCommAbort", handle, [&](machine& all, lock_type& lock, const communicator& it) {
    end_kernels(all, lock, it);
    close(it);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommCount(const ncclComm_t handle, int* count) {
  return call_of("ncclCommCount", handle, [&](machine&, lock_type&, const communicator& it) {
    *count = it->ranks->size();
    return check_usable(*it);
  });
}

ncclResult_t ncclCommCuDevice(const ncclComm_t handle, int* device) {
  return call_of("ncclCommCuDevice", handle, [&](machine&, lock_type&, const communicator& it) {
    *device = it->device;
    return check_usable(*it);
  });
}

ncclResult_t ncclCommUserRank(const ncclComm_t handle, int* rank) {
  return call_of("ncclCommUserRank", handle, [&](machine&, lock_type&, const communicator& it) {
    *rank = it->rank;
    return check_usable(*it);
  });
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* memory, std::size_t bytes, void** registration) {
  return call_of("ncclCommRegister", handle, [&](machine& all, lock_type&, const communicator& it) -> ncclResult_t {
    if (const ncclResult_t usable = check_usable(*it); usable != ncclSuccess) {
      return usable;
    }
    const auto found = all.find_memory(memory);
    if (found == all.memory.end() || found->second.is != allocation::sort::device || !is_usable(all, memory, bytes)) {
      return refused(ncclInvalidArgument, "only device memory can be registered");
    }
    *registration = memory;
    ++it->registrations[memory];
    return ncclSuccess;
  });
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* registration) {
  return call_of("ncclCommDeregister", handle, [&](machine&, lock_type&, const communicator& it) -> ncclResult_t {
    const auto found = it->registrations.find(registration);
    if (found == it->registrations.end()) {
      return refused(ncclInvalidArgument, "no such registration");
    }
    if (--found->second == 0) {
      it->registrations.erase(found);
    }
    return ncclSuccess;
  });
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) {
    return refused(ncclInvalidUsage, "no group has begun");
  }
  if (--group_depth > 0) {
    return ncclSuccess;
  }
  const ncclResult_t result = call("ncclGroupEnd", [](machine& all, lock_type& lock) { return end_group(all, lock); });
  group_calls.clear();  // where a fault kept it from being ended
  group_joins.clear();
  group_error = ncclSuccess;
  return result;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t handle, cudaStream_t stream) {
  return post("ncclAllReduce", handle, stream, {call_sort::all_reduce, count, type, operation},
              {from, count, to, count});
}

ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t handle, cudaStream_t stream) {
  int rank = -1;
  static_cast<void>(ncclCommUserRank(handle, &rank));
  return post("ncclReduce", handle, stream, {call_sort::reduce, count, type, operation, root},
              {from, count, to, rank == root ? count : 0});
}

ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t handle, cudaStream_t stream) {
  return post("ncclReduceScatter", handle, stream, {call_sort::reduce_scatter, count, type, operation},
              {from, count * size_of(handle), to, count});
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t handle,
                           cudaStream_t stream) {
  return post("ncclAllGather", handle, stream, {call_sort::all_gather, count, type, ncclSum},
              {from, count, to, count * size_of(handle)});
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t handle, cudaStream_t stream) {
  int rank = -1;
  static_cast<void>(ncclCommUserRank(handle, &rank));
  return post("ncclBroadcast", handle, stream, {call_sort::broadcast, count, type, ncclSum, root},
              {from, rank == root ? count : 0, to, count});
}

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return post("ncclSend", handle, stream, {call_sort::send, count, type, ncclSum}, {from, count, nullptr, 0}, peer);
}

ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t handle,
                      cudaStream_t stream) {
  return post("ncclRecv", handle, stream, {call_sort::receive, count, type, ncclSum}, {nullptr, 0, to, count}, peer);
}

}  // extern "C"
