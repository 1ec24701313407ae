#include <gradweave/backend/nccl/topology.hpp>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tests/emulated_cuda/control.hpp"

namespace gd = gradweave::detail;

namespace {

// NVML as it might be: devices 0 and 1 have two links, of which one is down, and meet at a switch.
int begin() { return 0; }
int end() { return 0; }
int handle(const char* bus_id, void** device) {
  static int devices[2];
  *device = &devices[bus_id[6] - '1'];
  return 0;
}
int link(void*, unsigned number, int* is_active) {
  *is_active = number == 1 ? 1 : 0;
  return number < 2 ? 0 : 3;
}
int ancestor(void* one, void* other, int* level) {
  *level = one != other ? 10 : -1;
  return 0;
}

void* look(std::string_view name) {
  return name == "nvmlInit_v2"                           ? reinterpret_cast<void*>(&begin)
         : name == "nvmlShutdown"                        ? reinterpret_cast<void*>(&end)
         : name == "nvmlDeviceGetHandleByPciBusId_v2"    ? reinterpret_cast<void*>(&handle)
         : name == "nvmlDeviceGetNvLinkState"            ? reinterpret_cast<void*>(&link)
         : name == "nvmlDeviceGetTopologyCommonAncestor" ? reinterpret_cast<void*>(&ancestor)
                                                         : nullptr;
}

std::string in_words(const gradweave::description& said) {
  std::string text;
  for (const auto& [key, value] : said.entries()) {
    text += key + " = " + value + "\n";
  }
  return text;
}

}  // namespace

TEST_CASE("nccl topology: the device and its ways to others, with NVML and without") {
  const emulated_cuda::session session(2);
  gradweave::description with, without;
  gd::describe_device(with, 0, gd::management_library::from(look));
  CHECK(in_words(with) ==
        "device = 0: emulated device, PCIe 0000:01:00.0, 1 NVLink\n"
        "to device 1 = directly, across one PCIe switch\n");
  gd::describe_device(without, 1, std::nullopt);
  CHECK(in_words(without) ==
        "device = 1: emulated device, PCIe 0000:02:00.0, NVML is not there\n"
        "to device 0 = directly\n");
  CHECK(!gd::management_library::from(
      [](const char* name) { return std::strcmp(name, "nvmlShutdown") == 0 ? nullptr : look(name); }));
}

TEST_CASE("nccl topology: NCCL's variables are told as they are") {
  const std::array<const char*, 5> variables = {"PATH=/bin", "NCCL_SOCKET_IFNAME=eth0", "NCCL_ALGO=Ring=1", "XNCCL_A=1",
                                                nullptr};
  gradweave::description said;
  gd::describe_nccl_variables(said, variables.data());
  CHECK(in_words(said) == "NCCL_ALGO = Ring=1\nNCCL_SOCKET_IFNAME = eth0\n");
}
