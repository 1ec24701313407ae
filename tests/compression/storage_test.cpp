#include <gradweave/compression/storage.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("as_float32: reads float32 in place, and widens the 16-bit kinds") {
  std::vector<float> room(2);
  const float plain[] = {1.5F, -2};
  CHECK(compression::as_float32(element_kind::float32, reinterpret_cast<const std::byte*>(plain), room).data() ==
        plain);
  const float16 half[] = {to_float16(1.5F), to_float16(-2)};
  const auto widened = compression::as_float32(element_kind::float16, reinterpret_cast<const std::byte*>(half), room);
  CHECK(widened.data() == room.data());
  CHECK(widened[1] == -2);
  const bfloat16 brain[] = {to_bfloat16(1.5F), to_bfloat16(-2)};
  CHECK(compression::as_float32(element_kind::bfloat16, reinterpret_cast<const std::byte*>(brain), room)[0] == 1.5F);
}

TEST_CASE("store_float32: rounds to the kind that is stored") {
  const float values[] = {1.0F + 0x1p-12F, 3};
  float16 half[2];
  compression::store_float32(element_kind::float16, values, reinterpret_cast<std::byte*>(half));
  CHECK(to_float32(half[0]) == 1);
  bfloat16 brain[2];
  compression::store_float32(element_kind::bfloat16, values, reinterpret_cast<std::byte*>(brain));
  CHECK(to_float32(brain[1]) == 3);
  float plain[2];
  compression::store_float32(element_kind::float32, values, reinterpret_cast<std::byte*>(plain));
  CHECK(plain[0] == values[0]);
}

TEST_CASE("storage: kinds that float32 does not hold are refused") {
  std::vector<float> room(1);
  double wide = 0;
  CHECK_THROWS_AS(compression::as_float32(element_kind::float64, reinterpret_cast<const std::byte*>(&wide), room),
                  contract_violation);
  CHECK_THROWS_AS(compression::store_float32(element_kind::float64, room, reinterpret_cast<std::byte*>(&wide)),
                  contract_violation);
}
