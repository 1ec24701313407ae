#include <gradweave/compression/stream_reduction.hpp>

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/coded.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/device/host_kernels.hpp>
#include <gradweave/one_of.hpp>

#include "tests/support/whole_collectives.hpp"

using namespace gradweave;
using namespace gradweave::tests;

using choice = one_of<compression::none, compression::fp16, compression::bf16>;
static_assert(explain_stream_compression<choice, host_kernels>());
static_assert(!compression_prepares_stream<compression::per_hop_rounding, host_kernels>);

namespace {

/// One rank's bucket, in one piece or in three with gaps.
struct rank_bucket {
  std::vector<std::byte> memory;
  std::vector<extent> extents;
  bucket_member member;

  rank_bucket(element_kind kind, std::size_t elements, bool whole, std::uint64_t seed) {
    const std::size_t size = element_bytes(kind);
    memory.resize((elements + 8) * size);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> values;
    for (std::size_t i = 0; i < elements + 8; ++i) {
      visit_element(kind, [&]<class T>(std::type_identity<T>) {
        const auto value = from_double<T>(values(random));
        std::memcpy(memory.data() + i * size, &value, sizeof value);
      });
    }
    const std::size_t cuts[] = {0, elements / 3, elements / 2, elements};
    for (std::size_t i = 0; i < 3; ++i) {
      append_extent(extents, memory.data() + (cuts[i] + (whole ? 0 : 2 * i)) * size, (cuts[i + 1] - cuts[i]) * size);
    }
    member = {{0}, 0, elements};
  }

  template <class T>
  static T from_double(double value) {
    if constexpr (std::same_as<T, float16>) {
      return to_float16(static_cast<float>(value));
    } else if constexpr (std::same_as<T, bfloat16>) {
      return to_bfloat16(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
};

/// One rank's program, on a host or on a stream.
template <class Program>
struct rank_run {
  Program program;
  std::vector<std::byte> scratch;
  std::uint64_t non_finite = 0;

  explicit rank_run(Program made) : program(std::move(made)), scratch(program.scratch_bytes() + 64) {}

  std::optional<collective_request> run(int stage) {
    std::byte* const aligned = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64);
    if constexpr (host_stages<Program>) {
      auto request = program.run(stage, {aligned, scratch.size() - 64});
      non_finite = program.non_finite();
      return request;
    } else {
      constexpr host_kernels kernels;
      return program.enqueue(stage,
                             stream_context<host_kernels>{kernels, {}, {aligned, scratch.size() - 64}, &non_finite});
    }
  }
};

struct reduced_buckets {
  std::vector<rank_bucket> buckets;
  std::uint64_t non_finite = 0;
};

/// All ranks' buckets after their programs, run side by side.
template <class Make>
reduced_buckets reduce(element_kind kind, std::size_t elements, bool whole, std::size_t ranks, Make&& make) {
  reduced_buckets result;
  for (std::size_t r = 0; r < ranks; ++r) {
    result.buckets.emplace_back(kind, elements, whole, r + 1);
  }
  if (kind == element_kind::float32 && elements > 5) {
    const float too_large_for_fp16 = 1e6F;
    std::memcpy(result.buckets[0].extents.back().memory, &too_large_for_fp16, sizeof(float));
  }
  std::vector<rank_run<decltype(make(bucket_layout{}, program_world{}))>> runs;
  for (std::size_t r = 0; r < ranks; ++r) {
    const rank_bucket& each = result.buckets[r];
    runs.emplace_back(
        make(bucket_layout{kind, elements, {&each.member, 1}, each.extents},
             program_world{static_cast<int>(r), static_cast<int>(ranks), static_cast<std::uint32_t>(ranks)}));
  }
  for (int stage = 0;; ++stage) {
    std::vector<kept_request> requests;
    for (auto& each : runs) {
      if (const auto request = each.run(stage)) {
        requests.emplace_back(*request);
      }
    }
    if (requests.empty()) {
      break;
    }
    REQUIRE(requests.size() == ranks);
    REQUIRE(mismatch_of(requests) == "");
    run_whole(requests);
  }
  for (const auto& each : runs) {
    result.non_finite += each.non_finite;
  }
  return result;
}

/// Where a mean is a sum times 1/3 the last bit may be another one than that of a quotient.
bool agree(element_kind kind, bool same_bits, const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (same_bits || kind != element_kind::float32) {
    return same_bits ? a == b : true;
  }
  for (std::size_t i = 0; i < a.size(); i += sizeof(float)) {
    float x, y;
    std::memcpy(&x, a.data() + i, sizeof x);
    std::memcpy(&y, b.data() + i, sizeof y);
    if (std::abs(x - y) > 2e-7F * std::abs(x)) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("stream_reduction: yields the bits and the counts that programs on hosts do") {
  constexpr host_kernels kernels;
  for (const choice& policy : {choice(compression::none{}), choice(compression::fp16{}), choice(compression::bf16{})}) {
    for (const element_kind kind :
         {element_kind::float32, element_kind::float64, element_kind::float16, element_kind::bfloat16}) {
      for (const std::size_t ranks : {1U, 2U, 3U, 4U}) {
        for (const std::size_t elements : {1U, 6U, 100U, 5000U}) {
          const bool whole = elements % 20 == 0;
          const auto on_hosts = reduce(kind, elements, whole, ranks, [&](const bucket_layout& of, program_world world) {
            return policy.prepare(of, world);
          });
          const auto on_streams = reduce(
              kind, elements, whole, ranks,
              [&](const bucket_layout& of, program_world world) { return policy.prepare_stream(of, world, kernels); });
          CAPTURE(static_cast<int>(kind));
          CAPTURE(ranks);
          CAPTURE(elements);
          CHECK(on_hosts.non_finite == on_streams.non_finite);
          const bool divides = policy.compresses(kind) || element_bytes(kind) == 2;
          for (std::size_t r = 0; r < ranks; ++r) {
            CHECK(agree(kind, divides || ranks != 3, on_hosts.buckets[r].memory, on_streams.buckets[r].memory));
            CHECK(bytes_of(on_streams.buckets[r].extents, 0, elements * element_bytes(kind)) ==
                  bytes_of(on_streams.buckets[0].extents, 0, elements * element_bytes(kind)));
          }
        }
      }
    }
  }
}
