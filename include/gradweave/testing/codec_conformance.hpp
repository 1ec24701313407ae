/// @file
/// The conformance kit of codecs. docs/reference/compression.md has what it checks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/compression/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/guarded_memory.hpp>
#include <gradweave/testing/values.hpp>

namespace gradweave::testing {

/// Optional atom of a codec: `decode_add(wire, sums)` adds what decode would write.
template <class C>
concept codec_adds =
    requires(const C& codec, std::span<const std::byte> wire, std::span<float> sums) { codec.decode_add(wire, sums); };

struct codec_conformance_options {
  rounding_bound bound;  ///< of one encoding and decoding; a block's is relative to the block's largest magnitude
  std::uint64_t seed = 1;
  bool guard_pages = true;  ///< look for reads past the end, in a child process
};

namespace detail {

/// The bits of a float without its sign: 0 for zero, rising with the magnitude.
inline std::uint32_t magnitude_bits(float value) { return std::bit_cast<std::uint32_t>(value) & 0x7fff'ffffU; }

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

/// Values for a codec to encode, with words for messages.
struct codec_case {
  std::string name;
  std::vector<float> values;
  bool guarded = false;  ///< looked at with guard pages too, once a count: a child process each takes its time
};

/// Fills by a function of the position.
template <class Value>
codec_case make_codec_case(const char* what, std::size_t count, Value&& value) {
  codec_case made{std::to_string(count) + " " + what, std::vector<float>(count), false};
  for (std::size_t i = 0; i < count; ++i) {
    made.values[i] = value(i);
  }
  return made;
}

/// Every pattern at every count: those of a few elements around a block's and a vector register's edges.
inline std::vector<codec_case> codec_cases(std::size_t block, const codec_conformance_options& options) {
  random_source random(options.seed);
  const auto limit = static_cast<float>(std::min<double>(options.bound.largest, std::numeric_limits<float>::max()));
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::size_t> counts = {0,  1,  2,  3,  7,  8,    9,     15,        16,
                                     17, 31, 33, 64, 65, 4099, block, block + 1, 3 * block + 5};
  if (block > 1) {
    counts.push_back(block - 1);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  std::vector<codec_case> cases;
  for (const std::size_t count : counts) {
    const auto add = [&](const char* what, auto&& value) { cases.push_back(make_codec_case(what, count, value)); };
    add("zeros", [](std::size_t i) { return i % 2 == 0 ? 0.0F : -0.0F; });
    add("values from -1 to 1", [&](std::size_t) { return static_cast<float>(random.signed_unit()); });
    cases.back().guarded = true;
    add("values of all magnitudes", [&](std::size_t) {
      const int exponent = static_cast<int>(random.below(80)) - 60;
      return std::clamp(std::ldexp(static_cast<float>(random.signed_unit()), exponent), -limit, limit);
    });
    add("subnormal values",
        [&](std::size_t) { return std::bit_cast<float>(static_cast<std::uint32_t>(random.next()) & 0x807f'ffffU); });
    add("largest values", [&](std::size_t i) { return i % 2 == 0 ? limit : -limit; });
    add("values beyond the largest", [&](std::size_t i) {
      return i % 3 == 0 ? std::numeric_limits<float>::max() : static_cast<float>(random.signed_unit());
    });
    add("values with infinities", [&](std::size_t i) {
      return i % 5 == 0 ? (i % 2 == 0 ? infinity : -infinity) : static_cast<float>(random.signed_unit());
    });
    add("values with NaNs", [&](std::size_t i) { return i % 7 == 0 ? nan : static_cast<float>(random.signed_unit()); });
  }
  return cases;
}

/// A codec under examination.
template <codec Codec>
class codec_examination {
 public:
  codec_examination(const Codec& by, const codec_conformance_options& options, conformance_recorder& recorder)
      : codec_(by), options_(options), recorder_(recorder), random_(options.seed) {}

  void kinds() {
    for (int value = 0; value < 256; ++value) {
      const auto kind = static_cast<element_kind>(value);
      if (!is_valid(kind)) {
        continue;
      }
      const bool supported = codec_.supports(kind);
      recorder_.check(supported == codec_.supports(kind), "supports() gave two answers for one kind");
      const bool in_float32 =
          kind == element_kind::float32 || kind == element_kind::float16 || kind == element_kind::bfloat16;
      recorder_.check(!supported || in_float32, [&] {
        return "supports() takes " + std::string(element_name(kind)) + ", whose values float32 does not hold";
      });
    }
  }

  /// Encoded lengths add up over cuts at multiples of the block.
  void wire_sizes() {
    recorder_.check(codec_.wire_bytes(0) == 0, "wire_bytes(0) must be 0");
    for (int i = 0; i < 200; ++i) {
      const std::size_t head = random_.below(40) * Codec::block_elements;
      const std::size_t tail = random_.below(3 * Codec::block_elements + 100);
      recorder_.check(codec_.wire_bytes(head) + codec_.wire_bytes(tail) == codec_.wire_bytes(head + tail), [&] {
        return "wire_bytes does not add up over a cut between blocks: " + std::to_string(head) + " and " +
               std::to_string(tail) + " elements";
      });
    }
  }

  void examine(const codec_case& given) {
    const canaried_memory input(given.values.size() * sizeof(float));
    std::ranges::copy(given.values, input.as<float>().begin());
    const std::span<const float> values = input.as<float>();
    const std::size_t wire_bytes = codec_.wire_bytes(values.size());
    const canaried_memory wire(wire_bytes, std::byte{0x00});
    const canaried_memory again(wire_bytes, std::byte{0xff});
    const std::size_t count = codec_.encode(values, wire.bytes());
    const bool same_count = codec_.encode(values, again.bytes()) == count;
    const bool inside = recorder_.check(wire.intact() && again.intact(),
                                        [&] { return given.name + ": encode wrote outside of its wire_bytes"; });
    recorder_.check(same_count && std::ranges::equal(wire.bytes(), again.bytes()), [&] {
      return given.name + ": encode gave other bytes the second time, or left some of wire_bytes unwritten";
    });
    const std::vector<float> decoded = decode(given, wire.bytes());
    compare(given, decoded, count);
    in_chunks(given.name, values, wire.bytes(), decoded, count);
    if (inside && given.guarded && options_.guard_pages) {
      within_guards(given.name, values, wire.bytes());
    }
  }

 private:
  std::vector<float> decode(const codec_case& given, std::span<const std::byte> wire) {
    const std::size_t n = given.values.size();
    const canaried_memory first(n * sizeof(float), std::byte{0x00});
    const canaried_memory second(n * sizeof(float), std::byte{0xff});
    codec_.decode(wire, first.as<float>());
    codec_.decode(wire, second.as<float>());
    recorder_.check(first.intact() && second.intact(),
                    [&] { return given.name + ": decode wrote outside of the values"; });
    recorder_.check(same_bits(first.as<float>(), second.as<float>()),
                    [&] { return given.name + ": decode gave other values the second time, or left some unwritten"; });
    const std::vector<float> decoded(first.as<float>().begin(), first.as<float>().end());
    if constexpr (codec_adds<Codec>) {
      const canaried_memory sums(n * sizeof(float));
      std::ranges::fill(sums.as<float>(), 1.5F);
      codec_.decode_add(wire, sums.as<float>());
      recorder_.check(sums.intact(), [&] { return given.name + ": decode_add wrote outside of the sums"; });
      for (std::size_t i = 0; i < n; ++i) {
        recorder_.check(
            !is_finite(decoded[i]) || magnitude_bits(sums.as<float>()[i]) == magnitude_bits(1.5F + decoded[i]),
            [&] { return given.name + ": decode_add differs from decode and an addition"; });
      }
    }
    return decoded;
  }

  /// Each value within the bound, nothing infinite made finite, and the count of what is not finite.
  void compare(const codec_case& given, std::span<const float> decoded, std::size_t count) {
    std::size_t non_finite = 0;
    for (std::size_t begin = 0; begin < decoded.size(); begin += Codec::block_elements) {
      const std::size_t end = std::min(begin + Codec::block_elements, decoded.size());
      bool block_finite = true;
      double largest = 0;
      for (std::size_t i = begin; i < end; ++i) {
        block_finite = block_finite && is_finite(given.values[i]) &&
                       std::abs(static_cast<double>(given.values[i])) <= options_.bound.largest;
        largest =
            is_finite(given.values[i]) ? std::max(largest, std::abs(static_cast<double>(given.values[i]))) : largest;
      }
      for (std::size_t i = begin; i < end; ++i) {
        compare(given.name, given.values[i], decoded[i], largest, block_finite);
        non_finite += is_finite(decoded[i]) ? 0 : 1;
      }
    }
    recorder_.check(count == non_finite, [&] {
      return given.name + ": encode counted " + std::to_string(count) + " values that are not finite, decode gives " +
             std::to_string(non_finite);
    });
  }

  void compare(const std::string& name, float value, float decoded, double block_largest, bool block_finite) {
    if (!is_finite(value)) {
      recorder_.check(!is_finite(decoded), [&] { return name + ": what is not finite came back finite"; });
      return;
    }
    if (!is_finite(decoded)) {
      recorder_.check(!block_finite, [&] { return name + ": " + std::to_string(value) + " came back not finite"; });
      return;
    }
    const auto exact = static_cast<double>(value);
    const double error = std::abs(static_cast<double>(decoded) - exact);
    recorder_.check(error <= options_.bound.allowed(std::abs(exact), block_largest), [&] {
      return name + ": " + std::to_string(value) + " came back as " + std::to_string(decoded) +
             ", further away than the bound allows";
    });
    recorder_.check(block_largest != 0 || magnitude_bits(decoded) == 0, [&] { return name + ": zero must stay zero"; });
  }

  /// A driver encodes and decodes in chunks that it cuts between blocks; the bytes must be the same.
  void in_chunks(const std::string& name, std::span<const float> values, std::span<const std::byte> wire,
                 std::span<const float> decoded, std::size_t count) {
    const std::size_t n = values.size();
    const canaried_memory chunked(wire.size(), std::byte{0xaa});
    const canaried_memory chunked_values(n * sizeof(float), std::byte{0xaa});
    std::size_t chunked_count = 0;
    for (std::size_t begin = 0; begin < n;) {
      const std::size_t blocks = 1 + random_.below(std::max<std::size_t>(1, n / Codec::block_elements));
      const std::size_t length = std::min(n - begin, blocks * Codec::block_elements);
      const std::size_t at = codec_.wire_bytes(begin);
      const std::size_t bytes = codec_.wire_bytes(length);
      if (!recorder_.check(at + bytes <= wire.size(), "wire_bytes does not add up over a cut between blocks")) {
        return;
      }
      chunked_count += codec_.encode(values.subspan(begin, length), chunked.bytes().subspan(at, bytes));
      codec_.decode(wire.subspan(at, bytes), chunked_values.as<float>().subspan(begin, length));
      begin += length;
    }
    recorder_.check(chunked_count == count && std::ranges::equal(chunked.bytes(), wire),
                    [&] { return name + ": encoded in chunks between blocks the bytes differ"; });
    recorder_.check(same_bits(chunked_values.as<float>(), decoded),
                    [&] { return name + ": decoded in chunks between blocks the values differ"; });
  }

  void within_guards(const std::string& name, std::span<const float> values, std::span<const std::byte> wire) {
    const guarded_memory guarded_values(values.size_bytes());
    const guarded_memory guarded_wire(wire.size());
    std::ranges::copy(values, guarded_values.as<float>().begin());
    recorder_.check(survives([&] { codec_.encode(guarded_values.as<float>(), guarded_wire.bytes()); }),
                    [&] { return name + ": encode reads past the end of the values, or crashes"; });
    std::ranges::copy(wire, guarded_wire.bytes().begin());
    recorder_.check(survives([&] { codec_.decode(guarded_wire.bytes(), guarded_values.as<float>()); }),
                    [&] { return name + ": decode reads past the end of the wire, or crashes"; });
  }

  const Codec& codec_;
  const codec_conformance_options& options_;
  conformance_recorder& recorder_;
  random_source random_;
};

}  // namespace detail

/// Checks a codec's sizes, that it writes and reads what it may and no more, its rounding against `options.bound`, what
/// it does with zeros, subnormals, the largest values, infinities and NaNs, that it is a pure function, and that a cut
/// between blocks changes no byte.
template <codec Codec>
conformance_report check_codec(const Codec& by, const codec_conformance_options& options) {
  conformance_recorder recorder;
  detail::codec_examination<Codec> examination(by, options, recorder);
  recorder.part("supports", [&] { examination.kinds(); });
  recorder.part("wire_bytes", [&] { examination.wire_sizes(); });
  for (const detail::codec_case& given : detail::codec_cases(Codec::block_elements, options)) {
    recorder.part(given.name, [&] { examination.examine(given); });
  }
  return recorder.report();
}

}  // namespace gradweave::testing
