#include <gradweave/testing/values.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

TEST_CASE("values: what is written as a kind is read as that kind") {
  for (int value = 1; value <= 12; ++value) {
    const auto kind = static_cast<gw::element_kind>(value);
    std::vector<std::byte> memory(3 * gw::element_bytes(kind));
    gt::write_value(kind, memory.data(), 1, 100);
    gt::write_value(kind, memory.data(), 2, 3);
    CHECK(gt::read_value(kind, memory.data(), 0) == 0);
    CHECK(gt::read_value(kind, memory.data(), 1) == 100);
    CHECK(gt::read_value(kind, memory.data(), 2) == 3);
  }
  std::vector<std::byte> memory(2);
  gt::write_value(gw::element_kind::float16, memory.data(), 0, 1.0 / 3);
  CHECK(gt::read_value(gw::element_kind::float16, memory.data(), 0) == 0.333251953125);
}

TEST_CASE("rounding_bound: adds its parts") {
  const gt::rounding_bound bound{0.5, 0.25, 1};
  CHECK(bound.allowed(2, 8) == 1 + 2 + 1);
  CHECK(gt::rounding_of(gw::element_kind::int32).allowed(1, 1) == 0);
}

TEST_CASE("scattered_buffer: is one buffer in several extents, fenced") {
  for (const std::size_t pieces : {1U, 2U, 3U, 7U, 20U}) {
    for (const std::size_t elements : {0U, 1U, 5U, 64U}) {
      gt::scattered_buffer buffer(gw::element_kind::float32, elements, pieces);
      CHECK(gw::total_bytes(buffer.extents()) == elements * 4);
      CHECK(buffer.extents().size() <= pieces);
      CHECK((elements < pieces || buffer.extents().size() > pieces / 2));
      for (std::size_t i = 0; i < elements; ++i) {
        buffer.write(i, static_cast<double>(i));
      }
      bool right = true;
      for (std::size_t i = 0; i < elements; ++i) {
        right = right && buffer.read(i) == static_cast<double>(i) &&
                gt::read_value(gw::element_kind::float32, buffer.bytes().data(), i) == static_cast<double>(i);
      }
      CHECK(right);
      CHECK(buffer.intact());
      for (const gw::extent& piece : buffer.extents()) {
        piece.memory[piece.bytes] = std::byte{0};
        CHECK(!buffer.intact());
        piece.memory[piece.bytes] = std::byte{0xc5};
        CHECK(buffer.intact());
      }
    }
  }
}
