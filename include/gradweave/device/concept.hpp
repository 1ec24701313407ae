/// @file
/// What kernels are to the rest of the library: operations on memory of a device, each enqueued on a stream and one pass
/// over memory. A lane on a stream takes them as a template parameter and sees no SDK. docs/reference/device_kernels.md has
/// the requirements.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gradweave/config.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// What float32 values are encoded in when they travel. The numbers are those that element_kind has, or keeps.
enum class wire_format : std::uint8_t {
  float32 = 1,
  float16 = 3,
  bfloat16 = 4,
  float8_e4m3 = 13,  ///< with an exponent for each block of float8_block_elements
  float8_e5m2 = 14,  ///< the same
};

/// Whether the format has exponents beside its values.
GRADWEAVE_HOST_DEVICE constexpr bool has_exponents(wire_format format) noexcept {
  return format == wire_format::float8_e4m3 || format == wire_format::float8_e5m2;
}

/// What a scatter finds out on the way: over the finite values, and how many others there are. Left by the scatter, not
/// added to.
struct scatter_summary {
  double squared_norm = 0;
  std::uint64_t non_finite = 0;

  friend bool operator==(const scatter_summary&, const scatter_summary&) = default;
};

/// values[i] *= factor, which is rounded to the format that is computed in: float for float16 and bfloat16.
struct scale_request {
  element_kind kind = element_kind::float32;  ///< must be floating
  std::byte* values = nullptr;
  std::size_t elements = 0;
  double factor = 1;
};

/// wire[i] = values[i] in the format, rounded once. With a residual (error feedback) it is values[i] + residual[i] that is
/// encoded, and residual[i] becomes what the encoding lost; 0 where that would not be finite.
struct encode_request {
  wire_format format = wire_format::float32;
  const float* values = nullptr;
  float* residual = nullptr;  ///< none: no error feedback
  std::size_t elements = 0;
  std::byte* wire = nullptr;
  std::int32_t* exponents = nullptr;    ///< float8_blocks(elements) of them, where the format has exponents
  std::uint64_t* non_finite = nullptr;  ///< the number of encoded values that decode to no finite one is added to it
};

/// sum[i] = (piece 0 [i] + piece 1 [i] + ...) / divisor, decoded and summed in float32 in this order, divided once. Of one
/// piece and with the divisor 1 it is what decodes.
struct sum_request {
  wire_format format = wire_format::float32;
  std::size_t pieces = 0;                    ///< at least 1
  const std::byte* wire = nullptr;           ///< of piece 0
  const std::int32_t* exponents = nullptr;   ///< of piece 0, where the format has exponents
  std::size_t wire_stride_bytes = 0;         ///< from a piece to the next
  std::size_t exponent_stride_elements = 0;  ///< from a piece's exponents to the next one's
  std::size_t elements = 0;
  std::uint32_t divisor = 1;  ///< 1 to divisor_max
  float* sum = nullptr;
};

/// *to = own, with the count at `non_finite`, which becomes 0. The record is part of the request: it is read at once.
struct record_request {
  step_record own;
  std::uint64_t* non_finite = nullptr;
  step_record* to = nullptr;
};

/// *verdict = what all ranks' records say together.
struct judge_request {
  const step_record* records = nullptr;  ///< by rank
  std::size_t ranks = 0;
  step_verdict* verdict = nullptr;
};

/// Where the packed side of gather and scatter has to begin, so that it is accessed by 16 bytes. Any other address needs
/// no more than its element's alignment.
inline constexpr std::size_t packed_alignment = 16;

/// Atom: `K::stream`: what operations are enqueued on, a handle that is copied.
template <class K>
concept kernels_have_streams = std::copyable<typename K::stream>;

/// Atom: `prepare(extents, kind)` returns a `K::extent_table`, for gather and scatter. It may allocate and block: call it
/// when a plan is made, not in a step.
template <class K>
concept kernels_prepare_extents = std::movable<typename K::extent_table> &&
                                  requires(const K& kernels, std::span<const extent> memory, element_kind kind) {
                                    { kernels.prepare(memory, kind) } -> std::same_as<typename K::extent_table>;
                                  };

/// Atom: `gather(stream, table, packed)` copies all extents, one after another, to `packed`.
template <class K>
concept kernels_can_gather = requires(const K& kernels, typename K::stream stream, typename K::extent_table& table,
                                      std::byte* packed) { kernels.gather(stream, table, packed); };

/// Atom: `scatter(stream, table, packed, summary)` copies from `packed` to the extents. `summary` may be null.
template <class K>
concept kernels_can_scatter =
    requires(const K& kernels, typename K::stream stream, typename K::extent_table& table, const std::byte* packed,
             scatter_summary* summary) { kernels.scatter(stream, table, packed, summary); };

/// Atom: `scale(stream, scale_request)`.
template <class K>
concept kernels_can_scale = requires(const K& kernels, typename K::stream stream, const scale_request& request) {
  kernels.scale(stream, request);
};

/// Atom: `encode(stream, encode_request)`.
template <class K>
concept kernels_can_encode = requires(const K& kernels, typename K::stream stream, const encode_request& request) {
  kernels.encode(stream, request);
};

/// Atom: `sum(stream, sum_request)`.
template <class K>
concept kernels_can_sum =
    requires(const K& kernels, typename K::stream stream, const sum_request& request) { kernels.sum(stream, request); };

/// Atoms: `write_record(stream, record_request)` and `judge_records(stream, judge_request)`.
template <class K>
concept kernels_can_record = requires(const K& kernels, typename K::stream stream, const record_request& request) {
  kernels.write_record(stream, request);
};
template <class K>
concept kernels_can_judge = requires(const K& kernels, typename K::stream stream, const judge_request& request) {
  kernels.judge_records(stream, request);
};

/// All pointers are of the kernels' memory, which the host may be unable to touch. No operation waits for the device.
/// A request that can't be carried out throws contract_violation, a failing device sync_error with its own words.
template <class K>
concept device_kernels = std::movable<K> && kernels_have_streams<K> && kernels_prepare_extents<K> &&
                         kernels_can_gather<K> && kernels_can_scatter<K> && kernels_can_scale<K> &&
                         kernels_can_encode<K> && kernels_can_sum<K> && kernels_can_record<K> && kernels_can_judge<K>;

/// Says in one sentence which requirement of `device_kernels` K misses. Compiles for a model of it.
template <class K>
consteval bool explain_device_kernels() {
  static_assert(std::movable<K>, "device_kernels: it must be movable");
  static_assert(kernels_have_streams<K>, "device_kernels: add a type `stream`, a handle that can be copied");
  static_assert(kernels_prepare_extents<K>,
                "device_kernels: prepare(span<const extent>, element_kind) must be const and return `extent_table`, "
                "which must be movable");
  static_assert(kernels_can_gather<K>, "device_kernels: gather(stream, extent_table&, byte* packed) must be const");
  static_assert(kernels_can_scatter<K>,
                "device_kernels: scatter(stream, extent_table&, const byte* packed, scatter_summary*) must be const");
  static_assert(kernels_can_scale<K>, "device_kernels: scale(stream, const scale_request&) must be const");
  static_assert(kernels_can_encode<K>, "device_kernels: encode(stream, const encode_request&) must be const");
  static_assert(kernels_can_sum<K>, "device_kernels: sum(stream, const sum_request&) must be const");
  static_assert(kernels_can_record<K>, "device_kernels: write_record(stream, const record_request&) must be const");
  static_assert(kernels_can_judge<K>, "device_kernels: judge_records(stream, const judge_request&) must be const");
  return device_kernels<K>;
}

}  // namespace gradweave
