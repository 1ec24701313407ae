#include <gradweave/compression/two_phase.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

namespace {

/// Blocks of 8 values that share a scale: wire sizes that depend on where blocks begin.
struct block_scaled {
  static constexpr std::size_t block_elements = 8;
  friend bool operator==(const block_scaled&, const block_scaled&) = default;
  bool supports(element_kind kind) const { return kind == element_kind::float32; }
  std::size_t wire_bytes(std::size_t elements) const { return elements + (elements + 7) / 8 * sizeof(float); }
  std::size_t encode(std::span<const float> values, std::span<std::byte> wire) const {
    std::byte* to = wire.data();
    for (std::size_t begin = 0; begin < values.size(); begin += 8) {
      const auto block = values.subspan(begin, std::min<std::size_t>(8, values.size() - begin));
      float largest = 0;
      for (const float v : block) {
        largest = std::max(largest, std::abs(v));
      }
      std::memcpy(to, &largest, sizeof largest);
      to += sizeof largest;
      for (const float v : block) {
        *to++ = static_cast<std::byte>(static_cast<signed char>(largest == 0 ? 0 : std::lround(v / largest * 127)));
      }
    }
    return 0;
  }
  void decode(std::span<const std::byte> wire, std::span<float> values) const {
    const std::byte* from = wire.data();
    for (std::size_t begin = 0; begin < values.size(); begin += 8) {
      float largest = 0;
      std::memcpy(&largest, from, sizeof largest);
      from += sizeof largest;
      for (std::size_t i = begin; i < std::min(begin + 8, values.size()); ++i) {
        values[i] = static_cast<float>(static_cast<signed char>(*from++)) * largest / 127;
      }
    }
  }
  void describe(description& sink) const { sink.add("name", "block_scaled"); }
};
static_assert(codec<block_scaled>);

/// Slots of these sizes, each in memory of its own; the average of rank + 1 times the position.
template <class Codec>
void check_average(Codec codec, int size, const std::vector<std::size_t>& slots, double bound) {
  std::mutex checking;
  std::uint64_t sent = 0;
  std::size_t expected_sent = 0;
  backend::run_loopback(size, [&](backend::loopback backend) {
    std::vector<std::vector<float>> tensors;
    std::vector<bucket_member> members;
    std::vector<extent> memory;
    std::size_t elements = 0;
    std::size_t encoded = 0;
    for (std::size_t s = 0; s < slots.size(); ++s) {
      auto& tensor = tensors.emplace_back(slots[s]);
      for (std::size_t i = 0; i < tensor.size(); ++i) {
        tensor[i] = static_cast<float>(static_cast<std::size_t>(backend.rank() + 1) * (s + 1) * (i % 13));
      }
      members.push_back({{static_cast<std::uint32_t>(s)}, elements, slots[s]});
      append_extent(memory, reinterpret_cast<std::byte*>(tensor.data()), slots[s] * sizeof(float));
      elements += slots[s];
      encoded += codec.wire_bytes(slots[s]);
    }
    compression::two_phase_program program(
        codec, {element_kind::float32, elements, members, memory},
        {backend.rank(), backend.size(), static_cast<std::uint32_t>(backend.size())});
    std::vector<std::byte> scratch(program.scratch_bytes());
    for (int stage = 0;; ++stage) {
      const auto request = program.run(stage, scratch);
      if (!request) {
        break;
      }
      run_collective(backend, *request);
    }
    const std::lock_guard lock(checking);
    sent += backend.payload_bytes_sent();
    expected_sent = 2 * static_cast<std::size_t>(size - 1) * encoded;
    for (std::size_t s = 0; s < slots.size(); ++s) {
      for (std::size_t i = 0; i < slots[s]; ++i) {
        const double exact = static_cast<double>((s + 1) * (i % 13)) * (size + 1) / 2;
        REQUIRE(std::abs(tensors[s][i] - exact) <=
                bound * static_cast<double>((s + 1) * 12 * static_cast<std::size_t>(size + 1)));
      }
    }
  });
  CHECK(sent == expected_sent);
}

}  // namespace

TEST_CASE("two_phase_program: averages over slots of any size, with blocks that never cross slots") {
  const testing::watchdog guard("two_phase");
  for (const int size : {1, 2, 3, 4}) {
    for (const auto& slots : std::vector<std::vector<std::size_t>>{
             {}, {0}, {1}, {3, 0, 5}, {8, 16, 7, 1}, {1000, 1, 5000, 13}, {63, 64, 65}}) {
      check_average(compression::fp16{}, size, slots, 0x1p-10);
      check_average(compression::bf16{}, size, slots, 0x1p-7);
      check_average(block_scaled{}, size, slots, 1.0 / 100);
    }
  }
}

TEST_CASE("two_phase_program: counts values that overflow, on the rank that encoded them") {
  std::vector<float> values{1, 1e6F, 2, -1e7F};
  const extent memory{reinterpret_cast<std::byte*>(values.data()), 16, 0};
  const bucket_member member{{0}, 0, 4};
  compression::two_phase_program program(compression::fp16{}, {element_kind::float32, 4, {&member, 1}, {&memory, 1}},
                                         {0, 2, 2});
  std::vector<std::byte> scratch(program.scratch_bytes());
  program.run(0, scratch);
  CHECK(program.non_finite() == 2);
}
