/// @file
/// `coded<Codec>`: the compression policy that a codec makes, through the two-phase driver.
#pragma once

#include <type_traits>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/compression/program_choice.hpp>
#include <gradweave/compression/stream_reduction.hpp>
#include <gradweave/compression/two_phase.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>

namespace gradweave::compression {

/// A codec whose encoding kernels know: `static constexpr wire_format format`, float16 or bfloat16. Its buckets can travel on
/// a stream.
template <class C>
concept codec_has_format = codec<C> && !requires { requires std::is_member_pointer_v<decltype(&C::format)>; } &&
                           requires { typename std::integral_constant<wire_format, C::format>; };

/// What: encodes what the codec supports; other element kinds travel as with `none`. Models: compression_policy.
/// Semantics, wire, numerics, failure: the codec's, through two_phase_program. `synchronize` makes it from a codec by
/// itself. Example: `gradweave::compression::coded<my_codec>{my_codec{...}}`.
template <codec Codec>
struct coded {
  Codec by;

  static constexpr collective_set collectives = none::collectives;
  using program = program_choice<two_phase_program<Codec>, none::program>;

  friend bool operator==(const coded&, const coded&) = default;

  bool compresses(element_kind kind) const { return by.supports(kind); }

  program prepare(const bucket_layout& layout, program_world world) const {
    if (by.supports(layout.kind)) {
      return two_phase_program<Codec>(by, layout, world);
    }
    return none{}.prepare(layout, world);
  }

  template <device_kernels Kernels>
    requires codec_has_format<Codec>
  stream_reduction<Kernels> prepare_stream(const bucket_layout& layout, program_world world,
                                           const Kernels& kernels) const {
    if (by.supports(layout.kind)) {
      return {layout, world, kernels, Codec::format};
    }
    return none{}.prepare_stream(layout, world, kernels);
  }

  void describe(description& sink) const { by.describe(sink); }
};

/// A compression policy as it is; a codec as the policy that it makes.
template <compression_policy Policy>
Policy as_compression(Policy policy) {
  return policy;
}
template <codec Codec>
coded<Codec> as_compression(Codec by) {
  return {by};
}

}  // namespace gradweave::compression
