// Compares our 8-bit conversions with the host implementation in CUDA's own header, as a second opinion.
#include <cuda_fp8.h>

#include <bit>
#include <cstdint>

#include <doctest/doctest.h>

#include <gradweave/element/float8.hpp>

namespace gw = gradweave;

namespace {

/// Every NaN as one.
std::uint32_t without_payload(std::uint32_t code, __nv_fp8_interpretation_t format) {
  const std::uint32_t magnitude = code & 0x7fu;
  return format == __NV_E4M3 ? (magnitude == 0x7fu ? 0x7fu : code) : (magnitude > 0x7cu ? 0x7eu : code);
}

template <class Float8>
void compare(__nv_fp8_interpretation_t format) {
  std::uint64_t different = 0;
  for (std::uint64_t bits = 0; bits < 0x1'0000'0000u; bits += 509) {  // a prime: all fractions, all exponents
    for (const std::uint32_t near : {0u, 0xffffu, 0xffff'0000u}) {
      const auto single = std::bit_cast<float>(static_cast<std::uint32_t>(bits) & ~near);
      const std::uint32_t theirs = __nv_cvt_float_to_fp8(single, __NV_NOSAT, format);
      different += without_payload(theirs, format) != gw::to_float8<Float8>(single).bits;
    }
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("float8: CUDA's host implementation agrees") {
  compare<gw::float8_e4m3>(__NV_E4M3);
  compare<gw::float8_e5m2>(__NV_E5M2);
}
