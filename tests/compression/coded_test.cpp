#include <gradweave/compression/coded.hpp>

#include <concepts>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/half.hpp>

using namespace gradweave;

TEST_CASE("coded: encodes what the codec supports, and leaves other kinds to none") {
  const compression::coded<compression::fp16> policy{};
  CHECK(policy.compresses(element_kind::float32));
  CHECK_FALSE(policy.compresses(element_kind::float64));
  std::vector<std::byte> memory(800);
  std::vector<std::byte> scratch(1 << 20);
  const bucket_member member{{0}, 0, 100};
  const extent floats{memory.data(), 400, 0};
  const extent doubles{memory.data(), 800, 0};
  auto encoded = policy.prepare({element_kind::float32, 100, {&member, 1}, {&floats, 1}}, {0, 2, 2});
  CHECK(encoded.run(0, scratch)->operation == collective::all_to_all);
  auto plain = policy.prepare({element_kind::float64, 100, {&member, 1}, {&doubles, 1}}, {0, 2, 2});
  CHECK(plain.run(0, scratch)->operation == collective::all_reduce);
}

TEST_CASE("as_compression: wraps a codec and leaves a policy alone") {
  static_assert(
      std::same_as<decltype(compression::as_compression(compression::fp16{})), compression::coded<compression::fp16>>);
  static_assert(std::same_as<decltype(compression::as_compression(compression::none{})), compression::none>);
}
