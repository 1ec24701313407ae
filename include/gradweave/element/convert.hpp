/// @file
/// Conversions over spans between float and the 16-bit formats, at memory speed. Every path (portable, AVX2 with F16C,
/// NEON) yields the bits of to_float16, to_bfloat16 and to_float32, and so does every path under flush-to-zero,
/// denormals-are-zero and -ffast-math: bits are moved by integer instructions, or by the hardware's conversions between
/// binary16 and binary32, for which the modes are without effect (a binary32 subnormal rounds to zero either way, and
/// binary16 subnormals are exempt by definition). Rounding is to nearest even; on aarch64 a program that changes the
/// processor's rounding mode changes it here too.
///
/// In all of them the spans have equal sizes, must not overlap, and need no alignment beyond their elements'.
#pragma once

#include <cstddef>
#include <span>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/instruction_set.hpp>
#include <gradweave/element/loops.hpp>
#include <gradweave/element/vectorized.hpp>

namespace gradweave {

namespace detail {

/// convert() on a chosen path, which must be supported. Tests run them all.
template <class Half>
std::size_t encode(instruction_set set, const std::byte* in, std::byte* out, std::size_t elements) noexcept {
  return set == instruction_set::portable ? encode_loop<portable<Half>>(in, out, elements)
                                          : vectorized<Half>::encode(in, out, elements);
}

template <class Half, decode_mode Mode>
void decode(instruction_set set, const std::byte* in, std::byte* out, std::size_t elements) noexcept {
  if (set == instruction_set::portable) {
    decode_loop<portable<Half>, Mode>(in, out, elements);
  } else {
    vectorized<Half>::template decode<Mode>(in, out, elements);
  }
}

template <class Half>
std::size_t checked_encode(std::span<const float> in, std::span<Half> out) {
  require(in.size() == out.size(), "convert: the spans differ in size");
  return encode<Half>(best_instruction_set(), reinterpret_cast<const std::byte*>(in.data()),
                      reinterpret_cast<std::byte*>(out.data()), in.size());
}

template <decode_mode Mode, class Half>
void checked_decode(std::span<const Half> in, std::span<float> out) {
  require(in.size() == out.size(), "convert: the spans differ in size");
  decode<Half, Mode>(best_instruction_set(), reinterpret_cast<const std::byte*>(in.data()),
                     reinterpret_cast<std::byte*>(out.data()), in.size());
}

}  // namespace detail

/// out[i] = to_float16(in[i]). Returns how many of the results are not finite, be it by overflow or from the input.
inline std::size_t convert(std::span<const float> in, std::span<float16> out) {
  return detail::checked_encode(in, out);
}

/// out[i] = to_bfloat16(in[i]). Returns how many of the results are not finite, be it by overflow or from the input.
inline std::size_t convert(std::span<const float> in, std::span<bfloat16> out) {
  return detail::checked_encode(in, out);
}

/// out[i] = to_float32(in[i]).
inline void convert(std::span<const float16> in, std::span<float> out) {
  detail::checked_decode<detail::decode_mode::assign>(in, out);
}

/// out[i] = to_float32(in[i]).
inline void convert(std::span<const bfloat16> in, std::span<float> out) {
  detail::checked_decode<detail::decode_mode::assign>(in, out);
}

/// accumulator[i] += to_float32(in[i]): one float addition an element, under the processor's modes.
inline void convert_add(std::span<const float16> in, std::span<float> accumulator) {
  detail::checked_decode<detail::decode_mode::add>(in, accumulator);
}

/// accumulator[i] += to_float32(in[i]): one float addition an element, under the processor's modes.
inline void convert_add(std::span<const bfloat16> in, std::span<float> accumulator) {
  detail::checked_decode<detail::decode_mode::add>(in, accumulator);
}

}  // namespace gradweave
