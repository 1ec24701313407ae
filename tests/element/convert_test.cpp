#include <gradweave/element/convert.hpp>

#include "tests/support/brief.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <random>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;
using gw::detail::decode_mode;
using gw::detail::instruction_set;

namespace {

constexpr std::uint32_t seed = 20240607;

std::vector<instruction_set> supported_sets() {
  std::vector<instruction_set> sets;
  for (const auto set : {instruction_set::portable, instruction_set::avx2, instruction_set::neon}) {
    if (gw::detail::supported(set)) {
      sets.push_back(set);
    }
  }
  return sets;
}

template <class Half>
Half encode_reference(std::uint32_t single) {
  if constexpr (std::is_same_v<Half, gw::float16>) {
    return gw::to_float16(std::bit_cast<float>(single));
  } else {
    return gw::to_bfloat16(std::bit_cast<float>(single));
  }
}

/// Singles travel as integers here: -ffast-math must find no NaN to have ideas about.
template <class Half>
std::size_t encode(instruction_set set, const std::uint32_t* in, Half* out, std::size_t elements) {
  return gw::detail::encode<Half>(set, reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out),
                                  elements);
}

template <class Half, decode_mode Mode>
void decode(instruction_set set, const Half* in, std::uint32_t* out, std::size_t elements) {
  gw::detail::decode<Half, Mode>(set, reinterpret_cast<const std::byte*>(in), reinterpret_cast<std::byte*>(out),
                                 elements);
}

/// Encodes `singles` on every path and compares bits and count with the conversion of one element.
template <class Half>
bool all_paths_encode(const std::vector<std::uint32_t>& singles) {
  std::vector<Half> expected(singles.size());
  std::size_t non_finite = 0;
  for (std::size_t i = 0; i < singles.size(); ++i) {
    expected[i] = encode_reference<Half>(singles[i]);
    non_finite += gw::is_finite(expected[i]) ? 0u : 1u;
  }
  std::vector<Half> out(singles.size());
  for (const auto set : supported_sets()) {
    std::fill(out.begin(), out.end(), Half{0x5555});
    if (encode(set, singles.data(), out.data(), out.size()) != non_finite || out != expected) {
      return false;
    }
  }
  return true;
}

template <class Half>
std::vector<Half> all_encodings() {
  std::vector<Half> halves(0x1'0000);
  for (std::size_t i = 0; i < halves.size(); ++i) {
    halves[i].bits = static_cast<std::uint16_t>(i);
  }
  return halves;
}

template <class Half>
std::vector<std::uint32_t> decode_reference(const std::vector<Half>& halves) {
  std::vector<std::uint32_t> singles;
  for (const Half half : halves) {
    singles.push_back(std::bit_cast<std::uint32_t>(gw::to_float32(half)));
  }
  return singles;
}

/// Values whose handling differs: every exponent, with fractions at, and beside, where roundings change.
std::vector<std::uint32_t> interesting_singles() {
  std::vector<std::uint32_t> singles;
  for (std::uint32_t high = 0; high < 0x1'0000; high += 3) {
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x1000u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      singles.push_back(high << 16 | low);
    }
  }
  return singles;
}

/// Runs the rest of a scope with the processor in a mode that a trainer may have set.
class processor_mode {
 public:
#if GRADWEAVE_X86_64
  static constexpr std::initializer_list<std::uint32_t> all = {0x1f80, 0x9fc0,
                                                               0x7f80};  // defaults; FTZ and DAZ; toward zero
  explicit processor_mode(std::uint32_t mode) : before_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(mode); }
  ~processor_mode() { __builtin_ia32_ldmxcsr(before_); }
#elif GRADWEAVE_AARCH64
  static constexpr std::initializer_list<std::uint32_t> all = {0,
                                                               1u << 24};  // defaults; FZ. A rounding mode would show.
  explicit processor_mode(std::uint64_t mode) {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" : : "r"(mode));
  }
  ~processor_mode() { asm volatile("msr fpcr, %0" : : "r"(before_)); }
#else
  static constexpr std::initializer_list<std::uint32_t> all = {0};
  explicit processor_mode(std::uint32_t) {}
#endif
  processor_mode(const processor_mode&) = delete;
  processor_mode& operator=(const processor_mode&) = delete;

 private:
#if GRADWEAVE_X86_64
  std::uint32_t before_;
#else
  std::uint64_t before_ = 0;
#endif
};

/// An array between guards, at an element offset from where a vector would like it.
template <class T>
class guarded {
 public:
  guarded(std::size_t offset, std::size_t elements)
      : offset_(guard + offset), bytes_((offset_ + elements + guard) * sizeof(T)) {
    std::fill(bytes_.begin(), bytes_.end(), filler);
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data()) + offset_; }
  bool intact(std::size_t elements) const {
    const auto first = bytes_.begin();
    const auto is_filler = [](std::byte byte) { return byte == filler; };
    return std::all_of(first, first + static_cast<std::ptrdiff_t>(offset_ * sizeof(T)), is_filler) &&
           std::all_of(first + static_cast<std::ptrdiff_t>((offset_ + elements) * sizeof(T)), bytes_.end(), is_filler);
  }

 private:
  static constexpr std::size_t guard = 64;
  static constexpr std::byte filler{0xa5};
  std::size_t offset_;
  std::vector<std::byte> bytes_;
};

}  // namespace

TEST_CASE_TEMPLATE("convert: every length and offset, and not a byte beyond", Half, gw::float16, gw::bfloat16) {
  std::mt19937 random(seed);
  CAPTURE(seed);
  std::vector<std::uint32_t> values(140);
  for (auto& value : values) {
    value = static_cast<std::uint32_t>(random());
  }
  for (const auto set : supported_sets()) {
    for (std::size_t elements = 0; elements <= 130; ++elements) {
      for (std::size_t offset = 0; offset < 9; offset += 1 + elements % 3) {
        CAPTURE(elements);
        CAPTURE(offset);
        guarded<std::uint32_t> singles(offset, elements);
        guarded<Half> halves(8 - offset, elements);
        std::copy_n(values.data(), elements, singles.data());
        std::size_t expected = 0;
        std::vector<Half> encoded(elements);
        for (std::size_t i = 0; i < elements; ++i) {
          encoded[i] = encode_reference<Half>(values[i]);
          expected += gw::is_finite(encoded[i]) ? 0u : 1u;
        }
        REQUIRE(encode(set, singles.data(), halves.data(), elements) == expected);
        REQUIRE(std::equal(encoded.begin(), encoded.end(), halves.data()));
        REQUIRE(std::equal(values.data(), values.data() + elements, singles.data()));
        REQUIRE(halves.intact(elements));

        decode<Half, decode_mode::assign>(set, halves.data(), singles.data(), elements);
        const std::vector<std::uint32_t> decoded = decode_reference(encoded);
        REQUIRE(std::equal(decoded.begin(), decoded.end(), singles.data()));
        REQUIRE(singles.intact(elements));

        // 0 + x = x for all but -0, which the test below has.
        std::fill_n(singles.data(), elements, 0u);
        decode<Half, decode_mode::add>(set, halves.data(), singles.data(), elements);
        for (std::size_t i = 0; i < elements; ++i) {
          REQUIRE((singles.data()[i] == decoded[i] || !gw::is_finite(encoded[i]) || encoded[i].bits == 0x8000u));
        }
        REQUIRE(singles.intact(elements));
        REQUIRE(halves.intact(elements));
      }
    }
  }
}

TEST_CASE_TEMPLATE("convert: every encoding decodes alike on all paths and in all modes", Half, gw::float16,
                   gw::bfloat16) {
  const std::vector<Half> halves = all_encodings<Half>();
  const std::vector<std::uint32_t> expected = decode_reference(halves);
  for (const auto mode : processor_mode::all) {
    for (const auto set : supported_sets()) {
      std::vector<std::uint32_t> out(halves.size());
      {
        const processor_mode scope(mode);
        decode<Half, decode_mode::assign>(set, halves.data(), out.data(), out.size());
      }
      CHECK(out == expected);
    }
  }
}

TEST_CASE_TEMPLATE("convert: boundaries, subnormals and specials encode alike on all paths and in all modes", Half,
                   gw::float16, gw::bfloat16) {
  const std::vector<std::uint32_t> singles = interesting_singles();
  std::vector<Half> expected;
  for (const std::uint32_t single : singles) {
    expected.push_back(encode_reference<Half>(single));
  }
  for (const auto mode : processor_mode::all) {
    for (const auto set : supported_sets()) {
      std::vector<Half> out(singles.size());
      {
        const processor_mode scope(mode);
        static_cast<void>(encode(set, singles.data(), out.data(), out.size()));
      }
      CHECK(out == expected);
    }
  }
}

TEST_CASE_TEMPLATE("convert: a sweep over floats encodes alike on all paths", Half, gw::float16, gw::bfloat16) {
  // An odd stride visits all residues; GRADWEAVE_TEST_FULL=1 visits every float.
  const std::uint64_t usual = gw::tests::is_brief() ? 2053 : 257;
  const std::uint64_t stride = std::getenv("GRADWEAVE_TEST_FULL") != nullptr ? 1 : usual;
  constexpr std::uint64_t end = std::uint64_t{1} << 32;
  std::vector<std::uint32_t> singles;
  bool same = true;
  for (std::uint64_t single = 0; single < end && same;) {
    singles.clear();
    for (; single < end && singles.size() < 0x1'0000; single += stride) {
      singles.push_back(static_cast<std::uint32_t>(single));
    }
    CAPTURE(singles.front());
    same = all_paths_encode<Half>(singles);
    CHECK(same);
  }
}

TEST_CASE_TEMPLATE("convert_add: one float addition an element", Half, gw::float16, gw::bfloat16) {
  // In the modes of the moment, so that the test holds where -ffast-math has switched subnormals off.
  std::mt19937 random(seed);
  CAPTURE(seed);
  const std::vector<Half> halves = all_encodings<Half>();
  std::vector<std::uint32_t> before(halves.size());
  for (auto& value : before) {
    value = static_cast<std::uint32_t>(random());
  }
  for (const auto set : supported_sets()) {
    std::vector<std::uint32_t> sums = before;
    decode<Half, decode_mode::add>(set, halves.data(), sums.data(), sums.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const auto old = std::bit_cast<float>(before[i]);
      const auto expected = std::bit_cast<std::uint32_t>(old + gw::to_float32(halves[i]));
      const bool nan = (expected & 0x7fff'ffffu) > 0x7f80'0000u;
      CAPTURE(i);
      REQUIRE((nan ? (sums[i] & 0x7fff'ffffu) > 0x7f80'0000u : sums[i] == expected));
    }
  }
}

TEST_CASE("convert: takes spans, reports overflow and input that is not finite") {
  const std::vector<float> values = {1.0f,
                                     -2.5f,
                                     65504.0f,
                                     65520.0f,
                                     1e30f,
                                     0.0f,
                                     std::bit_cast<float>(0x7fc0'0001u),
                                     std::bit_cast<float>(0xff80'0000u),
                                     0x1p-24f};
  std::vector<gw::float16> half(values.size());
  CHECK(gw::convert(values, half) == 4);
  CHECK(half[3].bits == 0x7c00u);
  CHECK(half[6].bits == 0x7e00u);
  CHECK(half[7].bits == 0xfc00u);
  std::vector<gw::bfloat16> brain(values.size());
  CHECK(gw::convert(values, brain) == 2);

  std::vector<float> back(values.size());
  gw::convert(half, back);
  CHECK(back[1] == -2.5f);
  gw::convert_add(half, back);
  CHECK(back[1] == -5.0f);
  gw::convert(brain, back);
  CHECK(back[0] == 1.0f);
  gw::convert_add(brain, back);
  CHECK(back[0] == 2.0f);
}

TEST_CASE("convert: spans of different size are a broken contract") {
  std::vector<float> values(3);
  std::vector<gw::float16> half(2);
  std::vector<gw::bfloat16> brain(4);
  CHECK_THROWS_AS(static_cast<void>(gw::convert(values, half)), gw::contract_violation);
  CHECK_THROWS_AS(static_cast<void>(gw::convert(values, brain)), gw::contract_violation);
  CHECK_THROWS_AS(gw::convert(half, values), gw::contract_violation);
  CHECK_THROWS_AS(gw::convert(brain, values), gw::contract_violation);
  CHECK_THROWS_AS(gw::convert_add(half, values), gw::contract_violation);
  CHECK_THROWS_AS(gw::convert_add(brain, values), gw::contract_violation);
}
