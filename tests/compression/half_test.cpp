#include <gradweave/compression/half.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("half_wire: two bytes an element, rounded to nearest even, overflow counted") {
  const compression::fp16 codec;
  const std::vector<float> values{1, -0.5F, 65504, 70000, 1.0F + 0x1p-11F};
  std::vector<std::byte> wire(codec.wire_bytes(values.size()));
  CHECK(wire.size() == 10);
  CHECK(codec.encode(values, wire) == 1);
  std::vector<float> decoded(values.size());
  codec.decode(wire, decoded);
  CHECK(decoded[1] == -0.5F);
  CHECK(decoded[2] == 65504);
  CHECK(decoded[3] > 1e30F);
  CHECK(decoded[4] == 1);
  codec.decode_add(std::span<const std::byte>(wire).first(2), std::span(decoded).first(1));
  CHECK(decoded[0] == 2);
}

TEST_CASE("half_wire: bf16 keeps what overflows fp16") {
  const compression::bf16 codec;
  const std::vector<float> values{1e30F};
  std::vector<std::byte> wire(2);
  CHECK(codec.encode(values, wire) == 0);
}

TEST_CASE("half_wire: supports what float32 holds") {
  for (const element_kind kind : {element_kind::float32, element_kind::float16, element_kind::bfloat16}) {
    CHECK(compression::fp16{}.supports(kind));
  }
  CHECK_FALSE(compression::bf16{}.supports(element_kind::float64));
}
