/// @file
/// No compression: gradients travel in the element kind that they are stored in.
#pragma once

#include <optional>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/all_reduce.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/program_choice.hpp>
#include <gradweave/compression/stream_reduction.hpp>
#include <gradweave/compression/two_phase.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>

namespace gradweave::compression {

/// What: float32 and float64 by an all-reduce in place; float16 and bfloat16 by a two-phase reduction with float32 sums
/// and one rounding. Models: compression_policy. Wire: 2 (N-1)/N of the bucket as stored. Memory: none for 32 and 64
/// bits, about two buckets of scratch below. Numerics: exact but for the sums' own rounding. Threading: none of its own.
/// Failure: as the backend's. Example: the default.
struct none {
  static constexpr collective_set collectives = {collective::all_reduce, collective::all_to_all,
                                                 collective::all_gather};
  using program = program_choice<all_reduce_program, two_phase_program<fp16>, two_phase_program<bf16>>;

  friend bool operator==(const none&, const none&) = default;

  bool compresses(element_kind) const { return false; }

  program prepare(const bucket_layout& layout, program_world world) const {
    switch (layout.kind) {
      case element_kind::float16: return two_phase_program<fp16>({}, layout, world);
      case element_kind::bfloat16: return two_phase_program<bf16>({}, layout, world);
      default: return all_reduce_program(layout, world);
    }
  }

  template <device_kernels Kernels>
  stream_reduction<Kernels> prepare_stream(const bucket_layout& layout, program_world world,
                                           const Kernels& kernels) const {
    switch (layout.kind) {
      case element_kind::float16: return {layout, world, kernels, wire_format::float16};
      case element_kind::bfloat16: return {layout, world, kernels, wire_format::bfloat16};
      default: return {layout, world, kernels, std::nullopt};
    }
  }

  void describe(description& sink) const { sink.add("name", "none"); }
};

static_assert(compression_policy<none>);

}  // namespace gradweave::compression
