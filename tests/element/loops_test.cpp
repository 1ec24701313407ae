#include <gradweave/element/loops.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
using gw::detail::decode_mode;

// convert_test compares the loops with the conversion of one element, in full.

TEST_CASE("loops: load and store need no alignment") {
  std::byte memory[16] = {};
  gw::detail::store(memory + 1, 1.5f);
  CHECK(gw::detail::load<float>(memory + 1) == 1.5f);
  CHECK(gw::detail::load<std::uint32_t>(memory + 1) == std::bit_cast<std::uint32_t>(1.5f));
  CHECK(memory[0] == std::byte{0});
  CHECK(memory[5] == std::byte{0});
}

TEST_CASE("loops: whole blocks and what remains") {
  const std::size_t elements = 2 * gw::detail::block_elements + 5;
  std::vector<float> values(elements, 2.0f);
  values[3] = 1e10f;
  values[elements - 1] = -1e10f;
  std::vector<gw::float16> halves(elements);
  auto* const floats = reinterpret_cast<std::byte*>(values.data());
  auto* const encoded = reinterpret_cast<std::byte*>(halves.data());
  CHECK(gw::detail::encode_loop<gw::detail::portable<gw::float16>>(floats, encoded, elements) == 2);
  CHECK(halves[3].bits == 0x7c00u);
  CHECK(halves[elements - 1].bits == 0xfc00u);
  gw::detail::decode_loop<gw::detail::portable<gw::float16>, decode_mode::add>(encoded, floats, elements);
  CHECK(values[0] == 4.0f);
  CHECK(values[elements - 2] == 4.0f);
  gw::detail::decode_loop<gw::detail::portable<gw::float16>, decode_mode::assign>(encoded, floats, elements);
  CHECK(values[0] == 2.0f);
  CHECK(values[elements - 2] == 2.0f);
}
