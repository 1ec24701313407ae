/// @file
/// What a rank says of its device, and of NCCL's surroundings: for the report at the start. Nothing is decided by it.
#pragma once

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/description.hpp>

namespace gradweave::detail {

/// NCCL's own variables that are set, "NCCL_ALGO" and the like, in `variables`, a list as `environ` is. They are NCCL's: nobody
/// here reads or changes them.
inline void describe_nccl_variables(description& sink, const char* const* variables) {
  std::vector<std::string_view> found;
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    if (const std::string_view each = *variables; each.starts_with("NCCL_") && each.find('=') != each.npos) {
      found.push_back(each);
    }
  }
  std::sort(found.begin(), found.end());
  for (const std::string_view each : found) {
    sink.add(each.substr(0, each.find('=')), each.substr(each.find('=') + 1));
  }
}

/// The functions of NVIDIA's management library that are needed here, with its own C interface. It comes with the driver, so it
/// is looked for at run time.
class management_library {
 public:
  /// `look(name)` is the function's address, or null. Nothing where one is missing, or the library has no device.
  template <class Look>
  static std::optional<management_library> from(Look&& look) {
    management_library found;
    const auto get = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(look(name));
      return function != nullptr;
    };
    const bool has_all = get(found.begin_, "nvmlInit_v2") && get(found.end_, "nvmlShutdown") &&
                         get(found.handle_, "nvmlDeviceGetHandleByPciBusId_v2") &&
                         get(found.link_, "nvmlDeviceGetNvLinkState") &&
                         get(found.ancestor_, "nvmlDeviceGetTopologyCommonAncestor");
    return has_all && found.begin_() == 0 ? std::optional(found) : std::nullopt;
  }

  void end() const { end_(); }

  /// "18 NVLinks", or "no NVLink".
  std::string links(const std::string& bus_id) const {
    void* device = nullptr;
    if (handle_(bus_id.c_str(), &device) != 0) {
      return "unknown to NVML";
    }
    constexpr unsigned links_max = 64;
    int active = 0;
    for (unsigned link = 0; link < links_max; ++link) {
      int is_active = 0;
      active += link_(device, link, &is_active) == 0 && is_active != 0 ? 1 : 0;
    }
    return active == 0 ? "no NVLink" : std::to_string(active) + (active == 1 ? " NVLink" : " NVLinks");
  }

  /// Where PCIe's paths from two devices meet.
  std::string meeting_place(const std::string& one, const std::string& other) const {
    void *first = nullptr, *second = nullptr;
    int level = -1;
    if (handle_(one.c_str(), &first) != 0 || handle_(other.c_str(), &second) != 0 ||
        ancestor_(first, second, &level) != 0) {
      return "unknown to NVML";
    }
    switch (level) {
      case 0: return "one board";
      case 10: return "one PCIe switch";
      case 20: return "several PCIe switches";
      case 30: return "a PCIe host bridge";
      case 40: return "a processor";
      default: return "the link between processors";
    }
  }

 private:
  int (*begin_)() = nullptr;
  int (*end_)() = nullptr;
  int (*handle_)(const char*, void**) = nullptr;
  int (*link_)(void*, unsigned, int*) = nullptr;
  int (*ancestor_)(void*, void*, int*) = nullptr;
};

inline std::string bus_id_of(int device) {
  constexpr int bus_id_bytes = 32;
  char text[bus_id_bytes] = {};
  return cudaDeviceGetPCIBusId(text, bus_id_bytes, device) == cudaSuccess ? text : "";
}

/// The device, and how it reaches the others that this process sees; by NVML where there is one.
inline void describe_device(description& sink, int device, const std::optional<management_library>& management) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return;
  }
  const std::string bus_id = bus_id_of(device);
  sink.add("device", std::to_string(device) + ": " + properties.name + ", PCIe " + bus_id +
                         (management ? ", " + management->links(bus_id) : ", NVML is not there"));
  int count = 0;
  static_cast<void>(cudaGetDeviceCount(&count));
  for (int other = 0; other < count; ++other) {
    int reaches = 0;
    if (other != device && cudaDeviceCanAccessPeer(&reaches, device, other) == cudaSuccess) {
      sink.add("to device " + std::to_string(other),
               std::string(reaches != 0 ? "directly" : "through the host") +
                   (management ? ", across " + management->meeting_place(bus_id, bus_id_of(other)) : ""));
    }
  }
}

/// All of it, for this process.
inline void describe_surroundings(description& sink, int device) {
  struct closer {
    void operator()(void* library) const noexcept { static_cast<void>(dlclose(library)); }
  };
  const std::unique_ptr<void, closer> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  std::optional<management_library> management;
  if (library != nullptr) {
    management = management_library::from([&](const char* name) { return dlsym(library.get(), name); });
  }
  describe_device(sink, device, management);
  if (management) {
    management->end();
  }
  describe_nccl_variables(sink, environ);
}

}  // namespace gradweave::detail
