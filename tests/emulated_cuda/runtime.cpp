// The CUDA runtime's C interface over the emulated machine: what a library for communication calls.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "tests/emulated_cuda/machine.hpp"

namespace {

using emulated_cuda::detail::allocation;
using emulated_cuda::detail::current_device;
using emulated_cuda::detail::device_state;
using emulated_cuda::detail::event_state;
using emulated_cuda::detail::is_in_host_function;
using emulated_cuda::detail::last_error;
using emulated_cuda::detail::machine;
using emulated_cuda::detail::point;
using emulated_cuda::detail::stream_state;

using lock_type = std::unique_lock<std::mutex>;

cudaError_t noted(cudaError_t code) {
  if (code != cudaSuccess && code != cudaErrorNotReady) {  // which is an answer, not an error
    last_error = code;
  }
  return code;
}

/// Does what each call does first: refuses it within a host function, and fails where a test wants that.
template <class Body>
cudaError_t call(const char* function, Body&& body) {
  if (is_in_host_function) {
    return noted(cudaErrorNotPermitted);
  }
  machine& all = machine::get();
  lock_type lock(all.mutex);
  if (all.devices.empty()) {
    return noted(cudaErrorNoDevice);
  }
  if (const int code = all.injected(function); code != 0) {
    return noted(static_cast<cudaError_t>(code));
  }
  const device_state& device = all.devices[static_cast<std::size_t>(current_device)];
  if (device.broken != cudaSuccess) {
    return noted(device.broken);
  }
  try {
    return noted(body(all, lock));
  } catch (const std::bad_alloc&) {
    return noted(cudaErrorMemoryAllocation);
  }
}

/// As call(), with a stream that must exist.
template <class Body>
cudaError_t call_on(const char* function, cudaStream_t handle, Body&& body) {
  return call(function, [&](machine& all, lock_type& lock) {
    const auto stream = all.find_stream(handle, current_device);
    return stream == nullptr ? cudaErrorInvalidResourceHandle : body(all, lock, stream);
  });
}

template <class Body>
cudaError_t call_with(const char* function, cudaEvent_t handle, Body&& body) {
  return call(function, [&](machine& all, lock_type& lock) {
    const auto found = all.events.find(handle);
    return found == all.events.end() ? cudaErrorInvalidResourceHandle : body(all, lock, found->second);
  });
}

/// Waits for all of these. A session that ends meanwhile is a failure of the launch.
cudaError_t wait_for(machine& all, lock_type& lock, const std::vector<point>& points) {
  const int device = current_device;
  all.changed.wait(lock, [&] {
    return all.is_stopping || all.devices[static_cast<std::size_t>(device)].broken != cudaSuccess ||
           std::all_of(points.begin(), points.end(), [](const point& each) { return each.is_reached(); });
  });
  return all.is_stopping ? cudaErrorUnknown : all.devices[static_cast<std::size_t>(device)].broken;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

enum class place { device, pinned, pageable };

place place_of(machine& all, const void* pointer) {
  const auto found = all.find_memory(pointer);
  if (found == all.memory.end()) {
    return place::pageable;
  }
  return found->second.is == allocation::sort::device ? place::device : place::pinned;
}

bool fits(cudaMemcpyKind kind, place to, place from) {
  switch (kind) {
    case cudaMemcpyHostToHost: return to != place::device && from != place::device;
    case cudaMemcpyHostToDevice: return to == place::device && from != place::device;
    case cudaMemcpyDeviceToHost: return to != place::device && from == place::device;
    case cudaMemcpyDeviceToDevice: return to == place::device && from == place::device;
    case cudaMemcpyDefault: return true;
  }
  return false;
}

/// What a copy waits for depends on where memory is: pinned memory is read and written when the stream gets there. Pageable
/// memory is copied to a stage first, at once or when the stream gets there, which the caller then waits for; and what is
/// written to it is there when the call returns.
cudaError_t copy(machine& all, lock_type& lock, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 const std::shared_ptr<stream_state>& stream, bool waits) {
  const place target = place_of(all, to), source = place_of(all, from);
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (!fits(kind, target, source) || !all.is_in_bounds(to, bytes) || !all.is_in_bounds(from, bytes)) {
    return cudaErrorInvalidValue;
  }
  std::byte* const target_alias = all.to_alias(to);
  const std::byte* const source_alias = all.to_alias(from);
  const bool is_staged = source == place::pageable && all.random(stream->id, ~stream->enqueued) % 2 == 0;
  point done;
  if (is_staged) {
    auto stage = std::make_shared<std::vector<std::byte>>(source_alias, source_alias + bytes);
    done = all.enqueue(stream, [=] { std::memcpy(target_alias, stage->data(), bytes); });
  } else {
    done = all.enqueue(stream, [=] { std::memmove(target_alias, source_alias, bytes); });
  }
  waits = waits || target == place::pageable || (source == place::pageable && !is_staged);
  return waits ? wait_for(all, lock, {done}) : cudaSuccess;
}

cudaError_t fill(machine& all, lock_type& lock, void* memory, int value, std::size_t bytes,
                 const std::shared_ptr<stream_state>& stream, bool waits) {
  if (bytes == 0) {
    return cudaSuccess;
  }
  if (place_of(all, memory) == place::pageable || !all.is_in_bounds(memory, bytes)) {
    return cudaErrorInvalidValue;
  }
  std::byte* const target = all.to_alias(memory);
  const point done = all.enqueue(stream, [=] { std::memset(target, value, bytes); });
  return waits ? wait_for(all, lock, {done}) : cudaSuccess;
}

cudaError_t allocate_pinned(const char* function, void** pointer, std::size_t bytes) {
  return call(function, [&](machine& all, lock_type&) {
    auto* const made = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{4096}));
    std::memset(made, 0xcd, bytes);
    all.memory[reinterpret_cast<std::uintptr_t>(made)] = {bytes, 0, nullptr, current_device, allocation::sort::pinned};
    *pointer = made;
    return cudaSuccess;
  });
}

/// Removes memory of that sort, whose beginning this has to be.
cudaError_t forget(machine& all, const void* pointer, allocation::sort expected) {
  const auto found = all.memory.find(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == all.memory.end() || found->second.is != expected) {
    return cudaErrorInvalidValue;
  }
  all.unmap(found);
  return cudaSuccess;
}

cudaError_t open_stream(const char* function, cudaStream_t* handle, unsigned flags, int priority) {
  return call(function, [&](machine& all, lock_type&) {
    if ((flags & ~unsigned{cudaStreamNonBlocking}) != 0) {
      return cudaErrorInvalidValue;
    }
    auto stream = all.open_stream(current_device, flags, std::clamp(priority, -5, 0));
    *handle = reinterpret_cast<cudaStream_t>(stream.get());
    all.streams[*handle] = std::move(stream);
    return cudaSuccess;
  });
}

cudaError_t record(const char* function, cudaEvent_t event, cudaStream_t handle) {
  return call_with(function, event, [&](machine& all, lock_type&, const std::shared_ptr<event_state>& state) {
    const auto stream = all.find_stream(handle, current_device);
    if (stream == nullptr) {
      return cudaErrorInvalidResourceHandle;
    }
    auto when = std::make_shared<std::optional<std::chrono::steady_clock::time_point>>();
    state->when = when;
    state->last = all.enqueue(stream, [&all, when] {
      std::lock_guard lock(all.mutex);
      *when = std::chrono::steady_clock::now();
    });
    return cudaSuccess;
  });
}

struct error_text {
  cudaError_t code;
  const char* name;
  const char* text;
};

/// Those that the emulation returns by itself, and those that tests are likely to ask for.
constexpr error_text error_texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const error_text* text_of(cudaError_t code) {
  const auto* const found = std::find_if(std::begin(error_texts), std::end(error_texts),
                                         [&](const error_text& each) { return each.code == code; });
  return found == std::end(error_texts) ? nullptr : found;
}

}  // namespace

extern "C" {

// ---- devices and errors ---------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&](machine& all, lock_type&) {
    *count = static_cast<int>(all.devices.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&](machine&, lock_type&) {
    *device = current_device;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](machine& all, lock_type&) {
    if (device < 0 || device >= static_cast<int>(all.devices.size())) {
      return cudaErrorInvalidDevice;
    }
    current_device = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&](machine& all, lock_type&) {
    if (device < 0 || device >= static_cast<int>(all.devices.size())) {
      return cudaErrorInvalidDevice;
    }
    // Two multiprocessors, so that a grid has to stride; a capability that all kernels are compiled for.
    *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&](machine& all, lock_type&) {
    if (device < 0 || device >= static_cast<int>(all.devices.size())) {
      return cudaErrorInvalidDevice;
    }
    *properties = {};
    std::strcpy(properties->name, "emulated device");
    properties->uuid.bytes[0] = static_cast<char>(device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call("cudaDeviceGetPCIBusId", [&](machine& all, lock_type&) {
    if (device < 0 || device >= static_cast<int>(all.devices.size())) {
      return cudaErrorInvalidDevice;
    }
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(device) + 1);
    return cudaSuccess;
  });
}

/// Each pair of devices, 0 and 1, 2 and 3, is linked.
cudaError_t cudaDeviceCanAccessPeer(int* reaches, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&](machine&, lock_type&) {
    *reaches = device / 2 == peer / 2 && device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call("cudaDeviceGetStreamPriorityRange", [&](machine&, lock_type&) {
    if (least != nullptr) {
      *least = 0;
    }
    if (greatest != nullptr) {
      *greatest = -5;
    }
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize",
              [&](machine& all, lock_type& lock) { return wait_for(all, lock, all.tails(current_device, true)); });
}

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t code) {
  const error_text* const found = text_of(code);
  return found == nullptr ? "unrecognized error code" : found->name;
}

const char* cudaGetErrorString(cudaError_t code) {
  const error_text* const found = text_of(code);
  return found == nullptr ? "unrecognized error code" : found->text;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call("cudaDriverGetVersion", [&](machine&, lock_type&) {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// ---- streams --------------------------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return open_stream("cudaStreamCreate", stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return open_stream("cudaStreamCreateWithFlags", stream, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return open_stream("cudaStreamCreateWithPriority", stream, flags, priority);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call("cudaStreamDestroy", [&](machine& all, lock_type&) {
    const auto found = all.streams.find(handle);
    if (found == all.streams.end()) {
      return cudaErrorInvalidResourceHandle;
    }
    all.close_stream(found->second);
    all.streams.erase(found);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return call_on("cudaStreamGetPriority", handle,
                 [&](machine&, lock_type&, const std::shared_ptr<stream_state>& stream) {
                   *priority = stream->priority;
                   return cudaSuccess;
                 });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call_on("cudaStreamGetFlags", handle, [&](machine&, lock_type&, const std::shared_ptr<stream_state>& stream) {
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  return call_on("cudaStreamGetDevice", handle, [&](machine&, lock_type&, const std::shared_ptr<stream_state>& stream) {
    *device = stream->device;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call_on("cudaStreamQuery", handle, [&](machine&, lock_type&, const std::shared_ptr<stream_state>& stream) {
    return stream->completed == stream->enqueued ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call_on("cudaStreamSynchronize", handle,
                 [&](machine& all, lock_type& lock, const std::shared_ptr<stream_state>& stream) {
                   return wait_for(all, lock, {{stream, stream->enqueued}});
                 });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call_on("cudaStreamIsCapturing", handle, [&](machine&, lock_type&, const std::shared_ptr<stream_state>&) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t**, const cudaGraphEdgeData**, std::size_t*) {
  return call_on("cudaStreamGetCaptureInfo", handle, [&](machine&, lock_type&, const std::shared_ptr<stream_state>&) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call_on("cudaLaunchHostFunc", handle,
                 [&](machine& all, lock_type&, const std::shared_ptr<stream_state>& stream) {
                   all.enqueue(stream, [function, data] {
                     is_in_host_function = true;
                     function(data);
                     is_in_host_function = false;
                   });
                   return cudaSuccess;
                 });
}

// ---- events ---------------------------------------------------------------------------------------------------------

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&](machine& all, lock_type&) {
    auto event = std::make_shared<event_state>();
    event->is_timed = (flags & cudaEventDisableTiming) == 0;
    *handle = reinterpret_cast<cudaEvent_t>(event.get());
    all.events[*handle] = std::move(event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call("cudaEventDestroy", [&](machine& all, lock_type&) {
    return all.events.erase(handle) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return record("cudaEventRecord", event, stream); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return record("cudaEventRecordWithFlags", event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call_with("cudaEventQuery", handle, [&](machine&, lock_type&, const std::shared_ptr<event_state>& event) {
    return event->last.is_reached() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call_with("cudaEventSynchronize", handle,
                   [&](machine& all, lock_type& lock, const std::shared_ptr<event_state>& event) {
                     return wait_for(all, lock, {event->last});
                   });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call_with("cudaEventElapsedTime", begin,
                   [&](machine& all, lock_type&, const std::shared_ptr<event_state>& first) {
                     const auto found = all.events.find(end);
                     if (found == all.events.end() || !first->is_timed || !found->second->is_timed ||
                         first->when == nullptr || found->second->when == nullptr) {
                       return cudaErrorInvalidResourceHandle;
                     }
                     if (!first->last.is_reached() || !found->second->last.is_reached()) {
                       return cudaErrorNotReady;
                     }
                     const std::chrono::duration<float, std::milli> passed = **found->second->when - **first->when;
                     *milliseconds = passed.count();
                     return cudaSuccess;
                   });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return call_on("cudaStreamWaitEvent", handle,
                 [&](machine& all, lock_type&, const std::shared_ptr<stream_state>& stream) {
                   const auto found = all.events.find(event);
                   if (found == all.events.end()) {
                     return cudaErrorInvalidResourceHandle;
                   }
                   all.enqueue(stream, {}, {found->second->last});  // as recorded now: a later record changes nothing
                   return cudaSuccess;
                 });
}

// ---- memory ---------------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return call("cudaMalloc", [&](machine& all, lock_type&) {
    *pointer = bytes == 0 ? nullptr : all.map_memory(bytes, current_device);
    return cudaSuccess;
  });
}

/// Waits for the device, as CUDA does.
cudaError_t cudaFree(void* pointer) {
  return call("cudaFree", [&](machine& all, lock_type& lock) {
    if (pointer == nullptr) {
      return cudaSuccess;
    }
    const auto found = all.find_memory(pointer);
    if (found == all.memory.end() || found->second.is != allocation::sort::device) {
      return cudaErrorInvalidValue;
    }
    const cudaError_t waited = wait_for(all, lock, all.tails(found->second.device, true));
    return waited != cudaSuccess ? waited : forget(all, pointer, allocation::sort::device);
  });
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  return allocate_pinned("cudaMallocHost", pointer, bytes);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return allocate_pinned("cudaHostAlloc", pointer, bytes);
}

cudaError_t cudaFreeHost(void* pointer) {
  return call("cudaFreeHost", [&](machine& all, lock_type&) {
    return pointer == nullptr ? cudaSuccess : forget(all, pointer, allocation::sort::pinned);
  });
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned) {
  return call("cudaHostRegister", [&](machine& all, lock_type&) {
    if (pointer == nullptr || bytes == 0) {
      return cudaErrorInvalidValue;
    }
    const auto next = all.memory.lower_bound(reinterpret_cast<std::uintptr_t>(pointer));
    const bool overlaps = all.find_memory(pointer) != all.memory.end() ||
                          (next != all.memory.end() && next->first < reinterpret_cast<std::uintptr_t>(pointer) + bytes);
    if (overlaps) {
      return cudaErrorHostMemoryAlreadyRegistered;
    }
    all.memory[reinterpret_cast<std::uintptr_t>(pointer)] = {bytes, 0, nullptr, current_device,
                                                             allocation::sort::registered};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* pointer) {
  return call("cudaHostUnregister", [&](machine& all, lock_type&) {
    return forget(all, pointer, allocation::sort::registered) == cudaSuccess ? cudaSuccess
                                                                             : cudaErrorHostMemoryNotRegistered;
  });
}

cudaError_t cudaHostGetDevicePointer(void** device_pointer, void* pointer, unsigned) {
  return call("cudaHostGetDevicePointer", [&](machine& all, lock_type&) {
    if (place_of(all, pointer) != place::pinned) {
      return cudaErrorInvalidValue;
    }
    *device_pointer = pointer;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call("cudaPointerGetAttributes", [&](machine& all, lock_type&) {
    *attributes = {};
    auto* const address = const_cast<void*>(pointer);
    const auto found = all.find_memory(pointer);
    if (found == all.memory.end()) {
      attributes->type = cudaMemoryTypeUnregistered;
      attributes->device = -1;
      attributes->hostPointer = address;
      return cudaSuccess;
    }
    const bool is_device = found->second.is == allocation::sort::device;
    attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = found->second.device;
    attributes->devicePointer = address;
    attributes->hostPointer = is_device ? nullptr : address;
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return call_on("cudaMemcpyAsync", handle,
                 [&](machine& all, lock_type& lock, const std::shared_ptr<stream_state>& stream) {
                   return copy(all, lock, to, from, bytes, kind, stream, false);
                 });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return call_on("cudaMemcpy", nullptr,
                 [&](machine& all, lock_type& lock, const std::shared_ptr<stream_state>& stream) {
                   return copy(all, lock, to, from, bytes, kind, stream, true);
                 });
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t handle) {
  return call_on("cudaMemsetAsync", handle,
                 [&](machine& all, lock_type& lock, const std::shared_ptr<stream_state>& stream) {
                   return fill(all, lock, memory, value, bytes, stream, false);
                 });
}

/// Returns before the memory is filled, as CUDA may.
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return call_on("cudaMemset", nullptr,
                 [&](machine& all, lock_type& lock, const std::shared_ptr<stream_state>& stream) {
                   return fill(all, lock, memory, value, bytes, stream, false);
                 });
}

}  // extern "C"
