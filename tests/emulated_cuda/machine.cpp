#include "tests/emulated_cuda/machine.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace emulated_cuda {

namespace detail {

machine& machine::get() {
  static machine only;
  return only;
}

void machine::begin(int count) {
  std::lock_guard lock(mutex);
  is_stopping = false;
  devices.assign(static_cast<std::size_t>(count), {});
  current_device = 0;
  last_error = cudaSuccess;
}

void machine::end() {
  std::vector<std::shared_ptr<stream_state>> all;
  {
    std::lock_guard lock(mutex);
    is_stopping = true;
    ++version;
    for (const auto& [handle, stream] : streams) {
      all.push_back(stream);
    }
    for (const device_state& device : devices) {
      if (device.default_stream != nullptr) {
        all.push_back(device.default_stream);
      }
    }
    all.insert(all.end(), retired_.begin(), retired_.end());
    retired_.clear();
  }
  changed.notify_all();
  for (const auto& stream : all) {
    stream->thread.join();
    stream->queue.clear();  // its operations may hold the stream itself
  }
  std::lock_guard lock(mutex);
  forget_communicators();
  streams.clear();
  events.clear();
  devices.clear();
  faults.clear();
  while (!memory.empty()) {
    unmap(memory.begin());
  }
  seed = 0;
  progress_polls = 0;
  nccl_version = NCCL_VERSION_CODE;
  opens_memory = false;
}

void machine::run(const std::shared_ptr<stream_state>& stream) {
  own_stream = stream.get();
  std::unique_lock lock(mutex);
  while (true) {
    wait_on(*stream, lock, [&] {
      return is_stopping || (!stream->queue.empty() && !stream->held) || (stream->closing && stream->queue.empty());
    });
    if (is_stopping || stream->queue.empty()) {
      break;
    }
    operation next = std::move(stream->queue.front());
    stream->queue.pop_front();
    wait_on(*stream, lock, [&] {
      return is_stopping ||
             std::all_of(next.after.begin(), next.after.end(), [](const point& each) { return each.is_reached(); });
    });
    if (is_stopping) {
      break;
    }
    auto pause = stream->pause;
    if (seed != 0) {
      const std::uint64_t chance = random(stream->id, stream->completed);
      pause += std::chrono::microseconds(chance % 4 == 0 ? chance / 4 % 300 : 0);
    }
    lock.unlock();
    if (pause.count() != 0) {
      std::this_thread::sleep_for(pause);
    }
    if (next.work) {
      next.work();
    }
    next = {};
    lock.lock();
    ++stream->completed;
    notify();
  }
  stream->ended = true;
  notify();
}

void machine::join_ended() {
  const auto first = std::partition(retired_.begin(), retired_.end(), [](const auto& each) { return !each->ended; });
  std::for_each(first, retired_.end(), [](const auto& each) { each->thread.join(); });
  retired_.erase(first, retired_.end());
}

std::shared_ptr<stream_state> machine::open_stream(int device, unsigned flags, int priority) {
  join_ended();
  auto stream = std::make_shared<stream_state>();
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id_++;
  stream->thread = std::thread([this, stream] { run(stream); });
  return stream;
}

void machine::close_stream(const std::shared_ptr<stream_state>& stream) {
  stream->closing = true;  // what it holds still runs, as in CUDA
  stream->held = false;
  retired_.push_back(stream);
  notify();
}

std::shared_ptr<stream_state> machine::find_stream(cudaStream_t handle, int device) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    auto& stream = devices[static_cast<std::size_t>(device)].default_stream;
    if (stream == nullptr) {
      stream = open_stream(device, cudaStreamDefault, 0);
    }
    return stream;
  }
  const auto found = streams.find(handle);
  return found == streams.end() ? nullptr : found->second;
}

std::vector<point> machine::tails(int device, bool all) const {
  std::vector<point> made;
  const auto add = [&](const std::shared_ptr<stream_state>& stream) {
    if (stream != nullptr && stream->device == device && (all || stream->waits_for_default_stream())) {
      made.push_back({stream, stream->enqueued});
    }
  };
  for (const auto& [handle, stream] : streams) {
    add(stream);
  }
  for (const auto& stream : retired_) {
    add(stream);
  }
  add(devices[static_cast<std::size_t>(device)].default_stream);
  return made;
}

point machine::enqueue(const std::shared_ptr<stream_state>& stream, std::function<void()> work,
                       std::vector<point> after) {
  const auto& default_stream = devices[static_cast<std::size_t>(stream->device)].default_stream;
  if (stream == default_stream) {  // it waits for all streams that are not non-blocking, and they for it
    for (point& tail : tails(stream->device, false)) {
      if (tail.stream != stream) {
        after.push_back(std::move(tail));
      }
    }
  } else if (default_stream != nullptr && stream->waits_for_default_stream()) {
    after.push_back({default_stream, default_stream->enqueued});
  }
  stream->queue.push_back({std::move(after), std::move(work)});
  ++stream->enqueued;
  notify();
  return {stream, stream->enqueued};
}

std::map<std::uintptr_t, allocation>::iterator machine::find_memory(const void* pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  auto found = memory.upper_bound(at);
  if (found == memory.begin()) {
    return memory.end();
  }
  --found;
  return at < found->first + std::max<std::size_t>(found->second.bytes, 1) ? found : memory.end();
}

/// Maps the same memory twice: for streams, and where nobody may touch it.
std::byte* machine::map_memory(std::size_t bytes, int device) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t mapped_bytes = (bytes + page) / page * page;  // one page at least, with room behind the end
  const int file = ::memfd_create("emulated device memory", MFD_CLOEXEC);
  if (file == -1 || ::ftruncate(file, static_cast<::off_t>(mapped_bytes)) != 0) {
    throw std::bad_alloc();
  }
  void* const own = ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  const int access = opens_memory ? PROT_READ | PROT_WRITE : PROT_NONE;
  void* const users = ::mmap(nullptr, mapped_bytes, access, MAP_SHARED, file, 0);
  ::close(file);
  if (own == MAP_FAILED || users == MAP_FAILED) {
    throw std::bad_alloc();
  }
  std::memset(own, 0xcd, mapped_bytes);  // what nobody wrote is no zero
  memory[reinterpret_cast<std::uintptr_t>(users)] = {bytes, mapped_bytes, static_cast<std::byte*>(own), device,
                                                     allocation::sort::device};
  return static_cast<std::byte*>(users);
}

void machine::unmap(std::map<std::uintptr_t, allocation>::iterator found) {
  auto* const users = reinterpret_cast<void*>(found->first);
  if (found->second.is == allocation::sort::device) {
    ::munmap(users, found->second.mapped_bytes);
    ::munmap(found->second.alias, found->second.mapped_bytes);
  } else if (found->second.is == allocation::sort::pinned) {
    ::operator delete(users, std::align_val_t{4096});
  }
  memory.erase(found);
}

bool machine::is_in_bounds(const void* pointer, std::size_t bytes) {
  const auto found = find_memory(pointer);
  return found == memory.end() ||
         reinterpret_cast<std::uintptr_t>(pointer) + bytes <= found->first + found->second.bytes;
}

std::byte* machine::to_alias(const void* pointer) {
  const auto found = find_memory(pointer);
  auto* const address = const_cast<std::byte*>(static_cast<const std::byte*>(pointer));
  return found == memory.end() || found->second.is != allocation::sort::device
             ? address
             : found->second.alias + (reinterpret_cast<std::uintptr_t>(pointer) - found->first);
}

int machine::injected(const char* function) {
  int code = 0;
  for (armed_fault& fault : faults) {
    if (fault.function == function && fault.calls_until != 0 && --fault.calls_until == 0) {
      code = fault.code;
    }
  }
  return code;
}

/// A hash of the seed and a place (splitmix64).
std::uint64_t machine::random(std::uint64_t stream, std::uint64_t number) const {
  std::uint64_t z = seed + stream * 0x9e3779b97f4a7c15u + number * 0xd1b54a32d192ed03u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace detail

using detail::machine;

session::session(int devices) { machine::get().begin(devices); }
session::~session() { machine::get().end(); }

live_counts live() {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  live_counts counts;
  counts.streams = all.streams.size();
  counts.events = all.events.size();
  for (const auto& [address, each] : all.memory) {
    ++(each.is == detail::allocation::sort::device ? counts.device_allocations : counts.pinned_ranges);
  }
  detail::count_communicators(counts);
  return counts;
}

std::string to_string(const live_counts& counts) {
  std::string text;
  const auto add = [&](std::size_t count, const char* what) {
    if (count != 0) {
      text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what + (count == 1 ? "" : "s");
    }
  };
  add(counts.streams, "stream");
  add(counts.events, "event");
  add(counts.device_allocations, "device allocation");
  add(counts.pinned_ranges, "pinned range");
  add(counts.communicators, "communicator");
  add(counts.registrations, "registration");
  return text;
}

void* alias(const void* pointer) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  return all.to_alias(pointer);
}

namespace {

template <class Change>
void change_stream(cudaStream_t handle, Change&& change) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  change(*all.find_stream(handle, detail::current_device));
  all.notify();
}

void arm(const std::string& function, std::uint64_t n, int code) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  all.faults.push_back({function, n, code});
}

}  // namespace

void hold(cudaStream_t stream) {
  change_stream(stream, [](detail::stream_state& it) { it.held = true; });
}
void release(cudaStream_t stream) {
  change_stream(stream, [](detail::stream_state& it) { it.held = false; });
}
void delay(cudaStream_t stream, std::chrono::microseconds pause) {
  change_stream(stream, [&](detail::stream_state& it) { it.pause = pause; });
}

bool settle() {
  machine& all = machine::get();
  std::unique_lock lock(all.mutex);
  bool at_end = true;
  const auto is_settled = [&](const std::shared_ptr<detail::stream_state>& stream) {
    at_end = at_end && (stream == nullptr || stream->completed == stream->enqueued);
    return stream == nullptr || stream->ended || stream->seen == all.version;
  };
  all.quiet.wait(lock, [&] {
    at_end = true;
    bool settled = true;
    for (const auto& [handle, stream] : all.streams) {
      settled = is_settled(stream) && settled;
    }
    for (const detail::device_state& device : all.devices) {
      settled = is_settled(device.default_stream) && settled;
      settled = settled && std::none_of(device.kernels.begin(), device.kernels.end(), [&](const auto& kernel) {
                  return kernel.second->ticket == kernel.first && device.has_room_for(kernel.first, all.version);
                });
    }
    return settled;
  });
  return at_end;
}

void open_memory(bool opens) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  all.opens_memory = opens;
}

void shuffle(std::uint64_t seed) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  all.seed = seed;
}

void fail_call(const std::string& function, std::uint64_t n, cudaError_t code) { arm(function, n, code); }
void fail_call(const std::string& function, std::uint64_t n, ncclResult_t code) { arm(function, n, code); }

void break_device(int device, cudaError_t code) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  all.devices.at(static_cast<std::size_t>(device)).broken = code;
  all.notify();
}

void set_progress_polls(int polls) {
  machine& all = machine::get();
  std::lock_guard lock(all.mutex);
  all.progress_polls = polls;
}

}  // namespace emulated_cuda
