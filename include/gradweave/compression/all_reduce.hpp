/// @file
/// The stage program without compression: one all-reduce in the gradients' own element kind, in place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::compression {

/// Models stage_program.
class all_reduce_program {
 public:
  all_reduce_program(const bucket_layout& layout, program_world world)
      : kind_(layout.kind), memory_(layout.memory), divisor_(world.divisor) {}

  std::size_t scratch_bytes() const { return 0; }
  std::size_t non_finite() const { return 0; }

  std::optional<collective_request> run(int stage, std::span<std::byte>) const {
    if (stage != 0) {
      return std::nullopt;
    }
    return collective_request{.operation = collective::all_reduce,
                              .kind = kind_,
                              .reduce = {reduction_operation::sum, divisor_},
                              .data = memory_};
  }

 private:
  element_kind kind_;
  std::span<const extent> memory_;
  std::uint32_t divisor_;
};

/// What: an all-reduce in the gradients' own element kind, also below 32 bits, where partial sums are then rounded at
/// every hop. Models: compression_policy. Wire: as stored. Numerics: exact up to the kind's own rounding of each partial
/// sum, N - 1 of them and the division; prefer `none`, which rounds once. Threading and failure: as the backend's.
/// Example: `gradweave::synchronize(std::move(gradients), backend, gradweave::compression::per_hop_rounding{})`.
struct per_hop_rounding {
  static constexpr collective_set collectives = {collective::all_reduce};

  friend bool operator==(const per_hop_rounding&, const per_hop_rounding&) = default;

  bool compresses(element_kind) const { return false; }
  all_reduce_program prepare(const bucket_layout& layout, program_world world) const { return {layout, world}; }
  void describe(description& sink) const { sink.add("name", "per_hop_rounding"); }
};

static_assert(compression_policy<per_hop_rounding>);

}  // namespace gradweave::compression
