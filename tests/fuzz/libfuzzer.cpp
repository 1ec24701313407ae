// A libFuzzer target: BUILD.bazel compiles this once for each decoder, with its header and its name.
#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradweave::fuzz::GRADWEAVE_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
