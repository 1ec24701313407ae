#include <gradweave/testing/codec_conformance.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include <doctest/doctest.h>

#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/element.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/values.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

enum class fault {
  none,
  writes_past_the_end,
  writes_before_the_start,
  reads_past_the_end,
  decode_reads_past_the_end,
  decode_writes_past_the_end,
  leaves_a_byte,
  leaves_a_value,
  truncates,
  saturates,
  forgets_to_count,
  makes_zero_small,
  remembers,
  adds_twice,
  takes_float64,
  rounds_size_up,
};

/// fp16 with something wrong.
struct faulty_codec {
  static constexpr std::size_t block_elements = 1;
  fault what = fault::none;
  gw::compression::fp16 right;
  mutable int calls = 0;

  friend bool operator==(const faulty_codec& a, const faulty_codec& b) { return a.what == b.what; }
  void describe(gw::description& sink) const { sink.add("name", "faulty"); }

  bool supports(gw::element_kind kind) const {
    return right.supports(kind) || (what == fault::takes_float64 && kind == gw::element_kind::float64);
  }
  std::size_t wire_bytes(std::size_t n) const { return what == fault::rounds_size_up ? (n + 1) / 2 * 4 : 2 * n; }

  std::size_t encode(std::span<const float> values, std::span<std::byte> wire) const {
    const std::size_t n = values.size();
    const std::byte last = n == 0 ? std::byte{} : wire[2 * n - 1];
    std::size_t count = right.encode(values, wire.first(2 * n));
    if (n == 0) {
      return count;
    }
    switch (what) {
      case fault::writes_past_the_end: wire.data()[2 * n] = std::byte{1}; break;
      case fault::writes_before_the_start: *(wire.data() - 1) = std::byte{1}; break;
      case fault::reads_past_the_end: {
        [[maybe_unused]] const float seen = static_cast<const volatile float*>(values.data())[n];
        break;
      }
      case fault::leaves_a_byte: wire[2 * n - 1] = last; break;
      case fault::truncates:
        for (std::size_t i = 0; i < n; ++i) {
          std::uint32_t bits = 0;
          std::memcpy(&bits, &values[i], 4);
          bits &= 0xffff'e000U;
          float cut = 0;
          std::memcpy(&cut, &bits, 4);
          right.encode({&cut, 1}, wire.subspan(2 * i, 2));
        }
        break;
      case fault::saturates:
        for (std::size_t i = 0; i < n; ++i) {
          const float cut = std::clamp(values[i], -65504.0F, 65504.0F);
          right.encode({&cut, 1}, wire.subspan(2 * i, 2));
        }
        count = 0;
        break;
      case fault::forgets_to_count: count = 0; break;
      case fault::makes_zero_small:
        for (std::size_t i = 0; i < n; ++i) {
          const float some = values[i] == 0 ? 0x1p-24F : values[i];
          right.encode({&some, 1}, wire.subspan(2 * i, 2));
        }
        break;
      case fault::remembers: wire[0] ^= static_cast<std::byte>(++calls % 2); break;
      default: break;
    }
    return count;
  }

  void decode(std::span<const std::byte> wire, std::span<float> values) const {
    const std::size_t n = values.size();
    const std::size_t written = what == fault::leaves_a_value && n != 0 ? n - 1 : n;
    right.decode(wire.first(2 * written), values.first(written));
    if (what == fault::decode_reads_past_the_end && n != 0) {
      [[maybe_unused]] const std::byte seen = static_cast<const volatile std::byte*>(wire.data())[2 * n];
    }
    if (what == fault::decode_writes_past_the_end) {
      values.data()[n] = 1;
    }
  }

  void decode_add(std::span<const std::byte> wire, std::span<float> sums) const {
    right.decode_add(wire, sums);
    if (what == fault::adds_twice) {
      right.decode_add(wire, sums);
    }
  }
};

/// One sign a value and the mean magnitude a block of 8: no decode_add, a size that is a multiple of nothing, blocks.
struct sign_codec {
  static constexpr std::size_t block_elements = 8;
  bool mean_of_finite_only = false;  ///< the fault: a value that is not finite vanishes

  friend bool operator==(const sign_codec&, const sign_codec&) = default;
  void describe(gw::description& sink) const { sink.add("name", "sign"); }
  bool supports(gw::element_kind kind) const { return kind == gw::element_kind::float32; }
  std::size_t wire_bytes(std::size_t n) const { return (n + 7) / 8 * 5; }

  std::size_t encode(std::span<const float> values, std::span<std::byte> wire) const {
    std::size_t not_finite = 0;
    for (std::size_t begin = 0, at = 0; begin < values.size(); begin += 8, at += 5) {
      const auto block = values.subspan(begin, std::min<std::size_t>(8, values.size() - begin));
      double sum = 0;
      unsigned signs = 0;
      for (std::size_t i = 0; i < block.size(); ++i) {
        sum += mean_of_finite_only && !gw::is_finite(block[i]) ? 0.0 : std::abs(static_cast<double>(block[i]));
        signs |= (std::signbit(block[i]) ? 1U : 0U) << i;
      }
      const auto mean = static_cast<float>(sum / static_cast<double>(block.size()));
      not_finite += gw::is_finite(mean) ? 0 : block.size();
      std::memcpy(wire.data() + at, &mean, 4);
      wire[at + 4] = static_cast<std::byte>(signs);
    }
    return not_finite;
  }

  void decode(std::span<const std::byte> wire, std::span<float> values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      float mean = 0;
      std::memcpy(&mean, wire.data() + i / 8 * 5, 4);
      const bool negative = ((static_cast<unsigned>(wire[i / 8 * 5 + 4]) >> (i % 8)) & 1U) != 0;
      values[i] = negative ? -mean : mean;
    }
  }
};

void check_passes(const gt::conformance_report& report) { CHECK_MESSAGE(report.passed(), gt::to_string(report)); }

void check_catches(fault what, std::string_view sentence) {
  const auto report = gt::check_codec(faulty_codec{what, {}}, {.bound = gt::rounding_of(gw::element_kind::float16)});
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_codec: the library's own codecs pass") {
  check_passes(gt::check_codec(gw::compression::fp16{}, {.bound = gt::rounding_of(gw::element_kind::float16)}));
  check_passes(
      gt::check_codec(gw::compression::bf16{}, {.bound = gt::rounding_of(gw::element_kind::bfloat16), .seed = 2}));
  check_passes(gt::check_description({gw::compression::fp16{}}));
  check_passes(gt::check_description({gw::compression::bf16{}}));
}

TEST_CASE("check_codec: a codec with blocks passes") {
  check_passes(gt::check_description({sign_codec{}}));
  check_passes(gt::check_codec(sign_codec{}, {.bound = {0, 2, 0}}));
  CHECK(gt::mentions(gt::check_codec(sign_codec{true}, {.bound = {0, 2, 0}}), "what is not finite came back finite"));
}

TEST_CASE("check_codec: a tighter bound than the codec's fails") {
  auto bound = gt::rounding_of(gw::element_kind::float16);
  bound.relative *= 0.9;
  CHECK(!gt::check_codec(gw::compression::fp16{}, {.bound = bound, .guard_pages = false}).passed());
  bound = gt::rounding_of(gw::element_kind::float16);
  bound.largest = 65520;
  CHECK(gt::mentions(gt::check_codec(gw::compression::fp16{}, {.bound = bound, .guard_pages = false}),
                     "came back not finite"));
}

TEST_CASE("check_codec: catches each fault") {
  check_passes(gt::check_description({faulty_codec{}}));
  check_passes(gt::check_codec(faulty_codec{}, {.bound = gt::rounding_of(gw::element_kind::float16)}));
  check_catches(fault::writes_past_the_end, "encode wrote outside of its wire_bytes");
  check_catches(fault::writes_before_the_start, "encode wrote outside of its wire_bytes");
  check_catches(fault::reads_past_the_end, "encode reads past the end");
  check_catches(fault::decode_reads_past_the_end, "decode reads past the end");
  check_catches(fault::decode_writes_past_the_end, "decode wrote outside");
  check_catches(fault::leaves_a_byte, "left some of wire_bytes unwritten");
  check_catches(fault::leaves_a_value, "left some unwritten");
  check_catches(fault::truncates, "further away than the bound allows");
  check_catches(fault::saturates, "what is not finite came back finite");
  check_catches(fault::forgets_to_count, "encode counted 0 values that are not finite");
  check_catches(fault::makes_zero_small, "zero must stay zero");
  check_catches(fault::remembers, "gave other bytes the second time");
  check_catches(fault::adds_twice, "decode_add differs");
  check_catches(fault::takes_float64, "takes float64");
  check_catches(fault::rounds_size_up, "does not add up");
}
