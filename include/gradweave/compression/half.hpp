/// @file
/// The 16-bit codecs: IEEE 754 binary16 (`fp16`) and bfloat16 (`bf16`) on the wire.
#pragma once

#include <concepts>
#include <cstddef>
#include <span>

#include <gradweave/compression/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>

namespace gradweave::compression {

/// What: 2 bytes an element on the wire, sums in float32, one rounding of the average. Models: codec. Semantics: see
/// two_phase. Wire and memory: 2 (N-1)/N * 2 bytes an element; scratch of about one float32 bucket.
/// Numerics: rounds to nearest even, twice in all: each contribution, then the average. Relative error a rounding: 2^-11
/// (fp16, absolute 2^-25 below 2^-14) or 2^-8 (bf16). No error feedback is needed. In fp16 a value beyond 65504 becomes infinite; the step's result counts such values.
/// Threading: pure functions. Failure: none.
/// Example: `gradweave::synchronize(std::move(gradients), backend, gradweave::compression::bf16{})`.
template <class Half>
  requires(std::same_as<Half, float16> || std::same_as<Half, bfloat16>)
struct half_wire {
  static constexpr std::size_t block_elements = 1;
  static constexpr wire_format format =
      std::same_as<Half, float16> ? wire_format::float16 : wire_format::bfloat16;  // what kernels make of it

  friend bool operator==(const half_wire&, const half_wire&) = default;

  /// All kinds that float32 holds exactly.
  bool supports(element_kind kind) const {
    return kind == element_kind::float32 || kind == element_kind::float16 || kind == element_kind::bfloat16;
  }

  std::size_t wire_bytes(std::size_t elements) const { return elements * sizeof(Half); }

  std::size_t encode(std::span<const float> values, std::span<std::byte> wire) const {
    return convert(values, std::span(reinterpret_cast<Half*>(wire.data()), values.size()));
  }

  void decode(std::span<const std::byte> wire, std::span<float> values) const {
    convert(std::span(reinterpret_cast<const Half*>(wire.data()), values.size()), values);
  }

  void decode_add(std::span<const std::byte> wire, std::span<float> sums) const {
    convert_add(std::span(reinterpret_cast<const Half*>(wire.data()), sums.size()), sums);
  }

  void describe(description& sink) const { sink.add("name", std::same_as<Half, float16> ? "fp16" : "bf16"); }
};

using fp16 = half_wire<float16>;
using bf16 = half_wire<bfloat16>;

static_assert(codec<fp16> && codec<bf16>);

}  // namespace gradweave::compression
