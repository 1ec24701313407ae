/// @file
/// The stage program on a stream: an all-reduce whose sum is scaled, or a two-phase reduction in 16 bits with float32 sums, as
/// compression/two_phase.hpp has it on hosts, with the same bits.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::compression {

/// Models stream_program. A bucket that lies in one piece is worked on in place; another one is gathered and scattered by one
/// kernel each, since a collective for each piece costs more than a pass over memory.
template <device_kernels Kernels>
class stream_reduction {
 public:
  /// `format`: what travels, float16 or bfloat16; none for an all-reduce in the bucket's own kind.
  stream_reduction(const bucket_layout& layout, program_world world, const Kernels& kernels,
                   std::optional<wire_format> format)
      : kind_(layout.kind),
        elements_(layout.elements),
        memory_(layout.memory),
        world_(world),
        format_(format),
        table_(kernels.prepare(layout.memory, layout.kind)) {
    require(!format || *format == wire_format::float16 || *format == wire_format::bfloat16,
            "stream_reduction: only float16 and bfloat16 travel on streams in place of the gradients' own kind");
    require(is_floating(layout.kind) && (!format || layout.kind != element_kind::float64),
            "stream_reduction: only floating elements are reduced, and float64 does not travel in 16 bits");
    // Equal shares, so that each collective is one call of a library that knows no uneven ones.
    share_ = (elements_ + size() * granule - 1) / (size() * granule) * granule;
    for (std::size_t r = 0; r <= size(); ++r) {
      pieces_.push_back(r * share_ * wire_element_bytes);
    }
  }

  std::size_t scratch_bytes() const {
    const std::size_t packed = in_one_piece() ? 0 : aligned(elements_ * element_bytes(kind_));
    return !format_ ? packed : packed + values_bytes() + 2 * aligned(pieces_.back());
  }

  std::optional<collective_request> enqueue(int stage, const stream_context<Kernels>& on) {
    return format_ ? enqueue_two_phase(stage, on) : enqueue_all_reduce(stage, on);
  }

 private:
  static constexpr std::size_t wire_element_bytes = 2;
  static constexpr std::size_t granule = 8;  // elements: 16 bytes

  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t rank() const { return static_cast<std::size_t>(world_.rank); }
  std::size_t size() const { return static_cast<std::size_t>(world_.size); }
  bool in_one_piece() const { return memory_.size() == 1; }

  /// The bucket's values in float32, where they lie elsewhere than packed; and the sums of the own share.
  std::size_t values_bytes() const { return aligned(std::max(elements_, share_) * sizeof(float)); }

  void gather(const stream_context<Kernels>& on) {
    packed_ = {in_one_piece() ? memory_[0].memory : on.scratch.data(), elements_ * element_bytes(kind_), 0};
    if (!in_one_piece()) {
      on.kernels.gather(on.stream, table_, packed_.memory);
    }
  }

  void scatter(const stream_context<Kernels>& on) {
    if (!in_one_piece()) {
      on.kernels.scatter(on.stream, table_, packed_.memory, nullptr);
    }
  }

  std::optional<collective_request> enqueue_all_reduce(int stage, const stream_context<Kernels>& on) {
    if (stage == 0) {
      gather(on);
      return collective_request{
          .operation = collective::all_reduce, .kind = kind_, .reduce = {}, .data = {&packed_, 1}};
    }
    if (world_.divisor != 1) {
      on.kernels.scale(on.stream, {kind_, packed_.memory, elements_, 1.0 / world_.divisor});
    }
    scatter(on);
    return std::nullopt;
  }

  std::optional<collective_request> enqueue_two_phase(int stage, const stream_context<Kernels>& on) {
    const std::size_t before = in_one_piece() ? 0 : aligned(elements_ * element_bytes(kind_));
    auto* const spare = reinterpret_cast<float*>(on.scratch.data() + before);
    wire_ = {on.scratch.data() + before + values_bytes(), pieces_.back(), 0};
    received_ = {wire_.memory + aligned(wire_.bytes), pieces_.back(), 0};
    switch (stage) {
      case 0:
        gather(on);
        on.kernels.encode(on.stream, {.format = *format_,
                                      .values = decode_packed(on, spare),
                                      .elements = elements_,
                                      .wire = wire_.memory,
                                      .non_finite = on.non_finite});
        return collective_request{.operation = collective::all_to_all,
                                  .data = {&received_, 1},
                                  .pieces = pieces_,
                                  .source = {&wire_, 1},
                                  .source_pieces = pieces_};
      case 1:
        reduce_own_share(on, spare);
        return collective_request{.operation = collective::all_gather, .data = {&wire_, 1}, .pieces = pieces_};
      default:
        encode_packed(on, spare);
        scatter(on);
        return std::nullopt;
    }
  }

  /// The packed values in float32, at `spare` unless that is what they are.
  const float* decode_packed(const stream_context<Kernels>& on, float* spare) {
    if (kind_ == element_kind::float32) {
      return reinterpret_cast<const float*>(packed_.memory);
    }
    decode(on, static_cast<wire_format>(kind_), packed_.memory, spare);
    return spare;
  }

  /// The averages that have arrived, as the bucket's elements are stored.
  void encode_packed(const stream_context<Kernels>& on, float* spare) {
    if (kind_ == element_kind::float32) {
      decode(on, *format_, wire_.memory, reinterpret_cast<float*>(packed_.memory));
      return;
    }
    decode(on, *format_, wire_.memory, spare);
    on.kernels.encode(
        on.stream,
        {.format = static_cast<wire_format>(kind_), .values = spare, .elements = elements_, .wire = packed_.memory});
  }

  void decode(const stream_context<Kernels>& on, wire_format format, const std::byte* from, float* to) {
    on.kernels.sum(on.stream, {.format = format, .pieces = 1, .wire = from, .elements = elements_, .sum = to});
  }

  /// Sums what all ranks sent in rank order, divides, and encodes it into its place among the shares.
  void reduce_own_share(const stream_context<Kernels>& on, float* sums) {
    const std::size_t begin = std::min(rank() * share_, elements_);
    const std::size_t count = std::min(share_, elements_ - begin);
    on.kernels.sum(on.stream, {.format = *format_,
                               .pieces = size(),
                               .wire = received_.memory,
                               .wire_stride_bytes = share_ * wire_element_bytes,
                               .elements = count,
                               .divisor = world_.divisor,
                               .sum = sums});
    on.kernels.encode(on.stream, {.format = *format_,
                                  .values = sums,
                                  .elements = count,
                                  .wire = wire_.memory + pieces_[rank()],
                                  .non_finite = on.non_finite});
  }

  element_kind kind_;
  std::size_t elements_;
  std::span<const extent> memory_;
  program_world world_;
  std::optional<wire_format> format_;
  typename Kernels::extent_table table_;
  std::size_t share_ = 0;            // elements of each rank, the last ones less
  std::vector<std::size_t> pieces_;  // of shares, in bytes
  extent packed_;
  extent wire_;      // all shares encoded: first the own contribution, then the averages
  extent received_;  // all contributions to the own share
};

}  // namespace gradweave::compression
