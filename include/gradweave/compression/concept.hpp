/// @file
/// What a compression policy is: it makes, for each bucket, a program of stages. Each stage is local compute followed
/// by one collective request, so that a lane can poll it. Most policies are only a *codec*, which the shared driver in
/// compression/two_phase.hpp turns into stages. docs/reference/compression.md has the requirements.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave {

/// The place in a bucket of a slot, or of a slice of one.
struct bucket_member {
  slot which;
  std::size_t begin = 0;  ///< position in the bucket, in elements
  std::size_t elements = 0;
  std::string_view name = {};  ///< of the slot
  std::size_t slot_begin = 0;  ///< where a slice begins in its slot, in elements
};

/// What a program is made for: a bucket's members in order, and the memory that they lie in.
struct bucket_layout {
  element_kind kind = element_kind::float32;
  std::size_t elements = 0;
  std::span<const bucket_member> members;
  std::span<const extent> memory;  ///< valid as long as the program lives
};

/// Where a program runs, and what it divides its sum over ranks by: the number of ranks for a mean, 1 for a sum.
struct program_world {
  int rank = 0;
  int size = 1;
  std::uint32_t divisor = 1;
  std::uint64_t step = 0;  ///< the first that it runs in; from then on it runs once in each
};

// ---- codec ----------------------------------------------------------------------------------------------------------

/// Atom: `static constexpr std::size_t block_elements`: encoded lengths add up over cuts at multiples of it.
template <class C>
concept codec_has_block = !requires { requires std::is_member_pointer_v<decltype(&C::block_elements)>; } && requires {
  typename std::integral_constant<std::size_t, C::block_elements>;
  requires(std::integral_constant<std::size_t, C::block_elements>::value > 0);
};

/// Atom: `supports(kind)`: gradients of that kind are encoded; others travel uncompressed.
template <class C>
concept codec_has_support = requires(const C& codec, element_kind kind) {
  { codec.supports(kind) } -> std::same_as<bool>;
};

/// Atom (`fixed_wire_size`): `wire_bytes(elements)`, a function of the count alone.
template <class C>
concept fixed_wire_size = requires(const C& codec, std::size_t elements) {
  { codec.wire_bytes(elements) } -> std::same_as<std::size_t>;
};

/// Atom: `encode(values, wire)` writes exactly wire_bytes(values.size()) bytes and returns how many of the encoded
/// values are not finite, be it by overflow or because they came so.
template <class C>
concept codec_can_encode = requires(const C& codec, std::span<const float> values, std::span<std::byte> wire) {
  { codec.encode(values, wire) } -> std::same_as<std::size_t>;
};

/// Atom: `decode(wire, values)`.
template <class C>
concept codec_can_decode =
    requires(const C& codec, std::span<const std::byte> wire, std::span<float> values) { codec.decode(wire, values); };

/// A pure function from float32 values to bytes and back. It never divides by the world size.
template <class C>
concept codec = policy_value<C> && codec_has_block<C> && codec_has_support<C> && fixed_wire_size<C> &&
                codec_can_encode<C> && codec_can_decode<C>;

/// Says in one sentence which requirement of `codec` C misses. Compiles for a codec.
template <class C>
consteval bool explain_codec() {
  static_assert(std::copyable<C>, "codec: it must be copyable");
  static_assert(std::equality_comparable<C>, "codec: it must have ==");
  static_assert(describes_itself<C>, "codec: describe(description&) must exist and be const");
  static_assert(codec_has_block<C>, "codec: add `static constexpr std::size_t block_elements`, at least 1");
  static_assert(codec_has_support<C>, "codec: supports(element_kind) must be const and return bool");
  static_assert(fixed_wire_size<C>, "codec: wire_bytes(std::size_t elements) must be const and return std::size_t");
  static_assert(codec_can_encode<C>,
                "codec: encode(span<const float>, span<byte>) must be const and return std::size_t, the number of "
                "values that are not finite");
  static_assert(codec_can_decode<C>, "codec: decode(span<const byte>, span<float>) must be const");
  return codec<C>;
}

// ---- stage program --------------------------------------------------------------------------------------------------

/// Atom: `scratch_bytes()`: how much memory `run` needs beside the bucket; the lane lends it.
template <class P>
concept program_has_scratch = requires(const P& program) {
  { program.scratch_bytes() } -> std::same_as<std::size_t>;
};

/// Atom (`host_stages`): `run(stage, scratch)` does the local compute of stage 0, 1, 2, ... and returns the collective
/// that follows it, or nothing after the last. On return of nothing the bucket holds the quotient. It allocates nothing.
/// The scratch is the same in all stages of one step; other buckets use it in between steps.
template <class P>
concept host_stages = requires(P& program, int stage, std::span<std::byte> scratch) {
  { program.run(stage, scratch) } -> std::same_as<std::optional<collective_request>>;
};

/// Atom: `non_finite()`: how many values the last run encoded that are not finite.
template <class P>
concept program_counts_non_finite = requires(const P& program) {
  { program.non_finite() } -> std::same_as<std::size_t>;
};

template <class P>
concept stage_program = std::movable<P> && program_has_scratch<P> && host_stages<P> && program_counts_non_finite<P>;

/// Optional atoms: `before_reduction()` sees the bucket as the backward pass left it, before weights or divisors of the
/// rules are applied; `after_reduction()` sees what the step ends with. Both may change values, and throw.
template <class P>
concept program_sees_before = requires(P& program) { program.before_reduction(); };
template <class P>
concept program_sees_after = requires(P& program) { program.after_reduction(); };

/// Calls it where it is.
template <stage_program P>
void before_reduction(P& program) {
  if constexpr (program_sees_before<P>) {
    program.before_reduction();
  }
}
template <stage_program P>
void after_reduction(P& program) {
  if constexpr (program_sees_after<P>) {
    program.after_reduction();
  }
}

/// Atom: `prepare(layout, world)` returns the stage program of one bucket.
template <class C>
concept compression_prepares = requires(const C& policy, const bucket_layout& layout, program_world world) {
  { policy.prepare(layout, world) } -> stage_program;
};

/// Atom: `static constexpr collective_set collectives`: what its programs request.
template <class C>
concept compression_has_collectives =
    !requires { requires std::is_member_pointer_v<decltype(&C::collectives)>; } && requires {
      { C::collectives } -> std::convertible_to<collective_set>;
      typename std::bool_constant<collective_set(C::collectives).contains(collective::barrier)>;  // a constant
    };

/// Atom: `compresses(kind)`: false where buckets of that kind travel uncompressed; the report says so.
template <class C>
concept compression_tells_kinds = requires(const C& policy, element_kind kind) {
  { policy.compresses(kind) } -> std::same_as<bool>;
};

/// A compression policy. Its programs end with the sum over ranks, divided by the world's divisor, in the bucket: they pass
/// the divisor on to a reduction, or divide where they sum.
template <class C>
concept compression_policy =
    policy_value<C> && compression_has_collectives<C> && compression_tells_kinds<C> && compression_prepares<C>;

/// Says in one sentence which requirement of `compression_policy` C misses. Compiles for a compression policy.
template <class C>
consteval bool explain_compression() {
  static_assert(std::copyable<C>, "compression: the policy must be copyable");
  static_assert(std::equality_comparable<C>, "compression: the policy must have ==");
  static_assert(describes_itself<C>, "compression: describe(description&) must exist and be const");
  static_assert(compression_has_collectives<C>, "compression: add `static constexpr collective_set collectives`");
  static_assert(compression_tells_kinds<C>, "compression: compresses(element_kind) must be const and return bool");
  static_assert(compression_prepares<C>,
                "compression: prepare(const bucket_layout&, program_world) must be const and return a stage_program: "
                "scratch_bytes(), run(int, span<byte>) returning optional<collective_request>, non_finite()");
  return compression_policy<C>;
}

// ---- on a stream ----------------------------------------------------------------------------------------------------

/// Where a program on a stream enqueues its work.
template <device_kernels Kernels>
struct stream_context {
  const Kernels& kernels;
  typename Kernels::stream stream;
  std::span<std::byte> scratch;         ///< of the device, on a cache line; the same in all stages
  std::uint64_t* non_finite = nullptr;  ///< of the device: what is encoded and is not finite is added to it
};

/// Atom (`stream_stages`): `enqueue(stage, context)` enqueues the local work of stage 0, 1, 2, ... and returns the collective
/// that follows it, or nothing after the last. It waits for nothing and allocates nothing. What the request refers to lives
/// as long as the program.
template <class P, class Kernels>
concept stream_stages = requires(P& program, int stage, const stream_context<Kernels>& on) {
  { program.enqueue(stage, on) } -> std::same_as<std::optional<collective_request>>;
};

template <class P, class Kernels>
concept stream_program = std::movable<P> && program_has_scratch<P> && stream_stages<P, Kernels>;

/// Atom: `prepare_stream(layout, world, kernels)` returns the program of one bucket on a stream. The kernels outlive it.
template <class C, class Kernels>
concept compression_prepares_stream =
    requires(const C& policy, const bucket_layout& layout, program_world world, const Kernels& kernels) {
      { policy.prepare_stream(layout, world, kernels) } -> stream_program<Kernels>;
    };

/// A compression policy whose buckets can travel on a stream.
template <class C, class Kernels>
concept stream_compression = compression_policy<C> && compression_prepares_stream<C, Kernels>;

/// Says in one sentence which requirement of `stream_compression` C misses. Compiles for one.
template <class C, class Kernels>
consteval bool explain_stream_compression() {
  explain_compression<C>();
  static_assert(
      compression_prepares_stream<C, Kernels>,
      "compression: the policy has no stages for a stream, which a stream backend needs; choose none, fp16 or "
      "bf16, or add prepare_stream(const bucket_layout&, program_world, const Kernels&), const, returning "
      "scratch_bytes() and enqueue(int, const stream_context<Kernels>&), which returns "
      "optional<collective_request>");
  return stream_compression<C, Kernels>;
}

}  // namespace gradweave
