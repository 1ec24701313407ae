// Your own policies: a codec, which decides what gradients travel as, and a bucketing, which decides what travels
// together. Both are plain values; neither derives from anything.
// Exits with 0 only if the averages are as close as the codec promises.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

// [codec]
/// Block floating point: 32 values share one power of two, and each keeps 8 bits: 33 bytes for 32 values instead of 128.
/// Rounding errs by at most 1/64 of the largest magnitude in the block (unless that is subnormal).
struct block_float8 {
  // gradweave cuts a bucket between blocks only, and blocks never reach across two gradients. The last block of a
  // gradient may be shorter.
  static constexpr std::size_t block_elements = 32;

  // Policies are compared over all ranks when the manifest is sealed, and say what they are.
  friend bool operator==(const block_float8&, const block_float8&) = default;
  void describe(gw::description& sink) const { sink.add("name", "block_float8"); }

  // Which gradients are encoded. Others, float64 here, travel as they are.
  bool supports(gw::element_kind kind) const { return kind == gw::element_kind::float32; }

  // A function of the count alone: a byte for each block's exponent, and a byte a value.
  std::size_t wire_bytes(std::size_t elements) const {
    return elements + (elements + block_elements - 1) / block_elements;
  }

  /// Writes wire_bytes(values.size()) bytes. Returns how many values were not finite: step_result reports the sum.
  std::size_t encode(std::span<const float> values, std::span<std::byte> wire) const {
    std::size_t non_finite = 0;
    for (std::size_t begin = 0, at = 0; begin < values.size(); begin += block_elements) {
      const auto block = values.subspan(begin, std::min(block_elements, values.size() - begin));
      float largest = 0;
      std::size_t bad = 0;
      for (const float value : block) {
        bad += is_finite(value) ? 0 : 1;
        largest = std::max(largest, std::abs(value));
      }
      non_finite += bad;
      int exponent = 0;
      std::frexp(bad != 0 ? 0 : largest, &exponent);  // largest < 2^exponent
      exponent = std::max(exponent - 1, -127);
      wire[at++] = static_cast<std::byte>(bad != 0 ? not_finite : exponent);
      for (const float value : block) {
        const float scaled = bad != 0 ? 0 : std::ldexp(value, 6 - exponent);  // within -128 to 128
        wire[at++] = static_cast<std::byte>(std::clamp<long>(std::lrint(scaled), -127, 127));
      }
    }
    return non_finite;
  }

  /// Reads what encode wrote. A block that held something not finite becomes NaN: never a number that looks right.
  void decode(std::span<const std::byte> wire, std::span<float> values) const {
    for (std::size_t begin = 0, at = 0; begin < values.size(); begin += block_elements) {
      const auto block = values.subspan(begin, std::min(block_elements, values.size() - begin));
      const auto exponent = static_cast<std::int8_t>(wire[at++]);
      for (float& value : block) {
        const auto scaled = static_cast<float>(static_cast<std::int8_t>(wire[at++]));
        value = exponent == not_finite ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(scaled, exponent - 6);
      }
    }
  }

 private:
  static constexpr int not_finite = -128;

  // By its bits, so that -ffast-math can't assume the answer.
  static bool is_finite(float value) {
    constexpr std::uint32_t exponent_bits = 0x7f800000;
    return (std::bit_cast<std::uint32_t>(value) & exponent_bits) != exponent_bits;
  }
};
// Where a requirement is missed, this line says in one sentence which one.
static_assert(gw::explain_codec<block_float8>());
// [/codec]

// [bucketing]
/// About `parts` buckets of equal size, filled from the gradient that was registered last: a backward pass begins there.
struct equal_parts {
  std::size_t parts = 4;

  friend bool operator==(const equal_parts&, const equal_parts&) = default;
  void describe(gw::description& sink) const {
    sink.add("name", "equal_parts");
    sink.add("parts", parts);
  }

  // A pure function. Rank 0's plan is sent to all ranks and checked: every slot in exactly one bucket, one element kind a
  // bucket.
  gw::bucket_plan plan(const gw::bucketing_input& input) const {
    std::size_t bytes_left = 0;
    for (const gw::slot_size& each : input.slots) {
      bytes_left += each.bytes;
    }
    const std::size_t bucket_bytes = bytes_left / std::max<std::size_t>(1, parts);
    gw::bucket_plan made;
    std::size_t filled = 0;
    for (std::size_t i = input.slots.size(); i-- > 0;) {
      const bool begins =
          made.buckets.empty() || filled >= bucket_bytes || input.slots[i].kind != input.slots[i + 1].kind;
      if (begins) {
        made.buckets.emplace_back();
        filled = 0;
      }
      made.buckets.back().push_back({static_cast<std::uint32_t>(i)});
      filled += input.slots[i].bytes;
    }
    return made;
  }

  // Whether to call plan once more after a step, with the order in which gradients became ready in it.
  bool replans_after(std::uint64_t) const { return false; }
};
static_assert(gw::explain_bucketing<equal_parts>());
// [/bucketing]

namespace {

void check(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

constexpr std::size_t layers = 8;
constexpr std::size_t layer_elements = 1000;

/// What rank `rank` adds to an average, the same in every run.
std::vector<float> contribution(int rank, std::size_t layer) {
  std::mt19937 random(static_cast<std::uint32_t>(rank) * 100 + static_cast<std::uint32_t>(layer));
  std::vector<float> values(layer_elements);
  for (float& value : values) {
    value = static_cast<float>(random()) / 4294967296.0f - 0.5f;
  }
  return values;
}

void run_rank(gw::backend::loopback backend) {
  const int rank = backend.rank();
  const int size = backend.size();
  std::vector<std::vector<float>> layer(layers, std::vector<float>(layer_elements));
  gw::manifest gradients;
  std::vector<gw::slot> slots;
  for (std::size_t i = 0; i < layers; ++i) {
    slots.push_back(gradients.add("layer " + std::to_string(i), layer[i]));
  }

  // [use]
  // In any order: they are told apart by what they can do.
  auto sync = gw::synchronize(std::move(gradients), std::move(backend), equal_parts{.parts = 4}, block_float8{});
  // [/use]
  check(sync.plan().buckets.size() == 4, "the plan does not have four buckets");

  const gw::step_result result = sync.step([&](auto& step) {
    for (std::size_t i = layers; i-- > 0;) {
      layer[i] = contribution(rank, i);
      step.ready(slots[i]);
    }
  });
  check(result.finite(), "finite gradients were called non-finite");

  // Contributions are below 1/2, and two roundings lie between them and the average: each rank's, and the average's own.
  constexpr double bound = 2 * 0.5 / 64;
  double worst = 0;
  for (std::size_t i = 0; i < layers; ++i) {
    std::vector<double> mean(layer_elements);
    for (int from = 0; from < size; ++from) {
      const std::vector<float> values = contribution(from, i);
      for (std::size_t k = 0; k < layer_elements; ++k) {
        mean[k] += static_cast<double>(values[k]) / size;
      }
    }
    for (std::size_t k = 0; k < layer_elements; ++k) {
      worst = std::max(worst, std::abs(mean[k] - static_cast<double>(layer[i][k])));
    }
  }
  if (size > 1) {
    check(worst > 0 && worst <= bound, "an average is further off than two roundings can put it");
  }

  const gw::step_result broken = sync.step([&](auto& step) {
    layer[3][5] = rank == 0 ? std::numeric_limits<float>::infinity() : 0;
    for (const gw::slot slot : slots) {
      step.ready(slot);
    }
  });
  check(size == 1 || !broken.finite(), "an infinite gradient went unnoticed");

  if (rank == 0) {
    const gw::sync_statistics& done = sync.statistics();
    std::printf("%d ranks: largest error %.4f of at most %.4f allowed; %.2f bytes sent for each byte of gradients\n",
                size, worst, bound, static_cast<double>(done.bytes_on_wire) / static_cast<double>(done.bytes_raw));
  }
}

}  // namespace

int main() {
  try {
    for (const int ranks : {1, 2, 3, 4}) {
      gw::backend::run_loopback(ranks, run_rank);
    }
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "own_policy: %s\n", fault.what());
    return 1;
  }
}
