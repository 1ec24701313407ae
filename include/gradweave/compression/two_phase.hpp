/// @file
/// The driver that turns a codec into a stage program: a two-phase reduction. Each rank owns a shard of the bucket. All
/// encode their contributions and send every owner its shard; the owner decodes and sums in float32 in rank order,
/// divides, rounds once and encodes; all gather the shards. That is 2 (N-1)/N of the encoded bucket a rank, as a ring.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/compression/storage.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::compression {

/// Models stage_program. Blocks of the codec never cross slots, and shards are cut between blocks.
template <codec Codec>
class two_phase_program {
 public:
  static constexpr collective_set collectives = {collective::all_to_all, collective::all_gather};

  /// The codec must support the layout's element kind.
  two_phase_program(Codec codec, const bucket_layout& layout, program_world world)
      : codec_(std::move(codec)), kind_(layout.kind), memory_(layout.memory), world_(world) {
    cut_into_shards(layout);
    const std::size_t own = wire_pieces_[rank() + 1] - wire_pieces_[rank()];
    for (std::size_t r = 0; r <= size(); ++r) {
      received_pieces_.push_back(r * own);
    }
  }

  std::size_t scratch_bytes() const {
    return aligned(wire_pieces_.back()) + aligned(received_pieces_.back()) + 2 * chunk_elements * sizeof(float);
  }

  std::size_t non_finite() const { return non_finite_; }

  std::optional<collective_request> run(int stage, std::span<std::byte> scratch) {
    lay_out(scratch);
    switch (stage) {
      case 0:
        non_finite_ = 0;
        encode_bucket();
        return collective_request{.operation = collective::all_to_all,
                                  .data = {&received_, 1},
                                  .pieces = received_pieces_,
                                  .source = {&wire_, 1},
                                  .source_pieces = wire_pieces_};
      case 1:
        reduce_own_shard();
        return collective_request{.operation = collective::all_gather, .data = {&wire_, 1}, .pieces = wire_pieces_};
      default: decode_bucket(); return std::nullopt;
    }
  }

 private:
  /// As many elements as are worked on at once, so that they stay in the first-level cache. A multiple of the block.
  static constexpr std::size_t chunk_elements =
      std::max<std::size_t>(1, 2048 / Codec::block_elements) * Codec::block_elements;

  /// A run of elements whose encoding is contiguous on the wire, within one slot where blocks matter.
  struct segment {
    std::size_t begin;  // in the bucket, in elements
    std::size_t elements;
    std::size_t wire_begin;  // in bytes
  };

  static constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t rank() const { return static_cast<std::size_t>(world_.rank); }
  std::size_t size() const { return static_cast<std::size_t>(world_.size); }

  void cut_into_shards(const bucket_layout& layout) {
    std::vector<bucket_member> runs(layout.members.begin(), layout.members.end());
    if constexpr (Codec::block_elements == 1) {
      runs = {{{}, 0, layout.elements}};
    }
    std::size_t blocks = 0;
    for (const bucket_member& run : runs) {
      blocks += (run.elements + Codec::block_elements - 1) / Codec::block_elements;
    }
    constexpr std::size_t granule = std::max<std::size_t>(1, 64 / Codec::block_elements);
    const std::size_t share = ((blocks + size() - 1) / size() + granule - 1) / granule * granule;
    shard_segments_ = {0};
    wire_pieces_ = {0};
    std::size_t wire = 0;
    std::size_t room = share;
    const auto next_shard = [&] {
      shard_segments_.push_back(segments_.size());
      wire_pieces_.push_back(wire);
      room = share;
    };
    for (const bucket_member& run : runs) {
      for (std::size_t done = 0; done < run.elements;) {
        if (room == 0) {
          next_shard();
        }
        const std::size_t taken = std::min(run.elements - done, room * Codec::block_elements);
        segments_.push_back({run.begin + done, taken, wire});
        wire += codec_.wire_bytes(taken);
        room -= (taken + Codec::block_elements - 1) / Codec::block_elements;
        done += taken;
      }
    }
    while (shard_segments_.size() <= size()) {
      next_shard();
    }
  }

  void lay_out(std::span<std::byte> scratch) {
    wire_ = {scratch.data(), wire_pieces_.back(), 0};
    received_ = {wire_.memory + aligned(wire_.bytes), received_pieces_.back(), 0};
    auto* chunks = reinterpret_cast<float*>(received_.memory + aligned(received_.bytes));
    sums_ = {chunks, chunk_elements};
    converted_ = {chunks + chunk_elements, chunk_elements};
  }

  /// Calls `visit(memory, count, wire)` for each chunk of the bucket: elements as they are stored, and their encoding.
  template <class Visit>
  void for_each_chunk(Visit&& visit) {
    for (const segment& part : segments_) {
      std::size_t done = 0;
      for_each_piece(
          memory_, part.begin * element_bytes(kind_), part.elements * element_bytes(kind_),
          [&](std::byte* memory, std::size_t bytes) {
            for (std::size_t left = bytes / element_bytes(kind_); left != 0;) {
              const std::size_t count = std::min(left, chunk_elements);
              visit(memory, count,
                    std::span(wire_.memory + part.wire_begin + codec_.wire_bytes(done), codec_.wire_bytes(count)));
              memory += count * element_bytes(kind_);
              done += count;
              left -= count;
            }
          });
    }
  }

  void encode_bucket() {
    for_each_chunk([&](std::byte* memory, std::size_t count, std::span<std::byte> wire) {
      non_finite_ += codec_.encode(as_float32(kind_, memory, converted_.first(count)), wire);
    });
  }

  void decode_bucket() {
    for_each_chunk([&](std::byte* memory, std::size_t count, std::span<std::byte> wire) {
      if (kind_ == element_kind::float32) {
        codec_.decode(wire, {reinterpret_cast<float*>(memory), count});
      } else {
        codec_.decode(wire, converted_.first(count));
        store_float32(kind_, converted_.first(count), memory);
      }
    });
  }

  /// Sums what arrived for this rank's shard in rank order, divides, and encodes it into its place among the shards.
  void reduce_own_shard() {
    const std::size_t own_begin = wire_pieces_[rank()];
    for (std::size_t s = shard_segments_[rank()]; s < shard_segments_[rank() + 1]; ++s) {
      for (std::size_t done = 0; done < segments_[s].elements;) {
        const std::size_t count = std::min(segments_[s].elements - done, chunk_elements);
        const std::size_t wire_begin = segments_[s].wire_begin + codec_.wire_bytes(done);
        const std::size_t wire_bytes = codec_.wire_bytes(count);
        const auto sums = sums_.first(count);
        for (std::size_t from = 0; from < size(); ++from) {
          const std::span<const std::byte> contribution(
              received_.memory + received_pieces_[from] + (wire_begin - own_begin), wire_bytes);
          if (from == 0) {
            codec_.decode(contribution, sums);
          } else {
            add_decoded(contribution, sums);
          }
        }
        divide(element_kind::float32, reinterpret_cast<std::byte*>(sums.data()), count, world_.divisor);
        non_finite_ += codec_.encode(sums, {wire_.memory + wire_begin, wire_bytes});
        done += count;
      }
    }
  }

  void add_decoded(std::span<const std::byte> contribution, std::span<float> sums) {
    if constexpr (requires { codec_.decode_add(contribution, sums); }) {
      codec_.decode_add(contribution, sums);
    } else {
      const auto values = converted_.first(sums.size());
      codec_.decode(contribution, values);
      reduce_into(reduction_operation::sum, element_kind::float32, reinterpret_cast<std::byte*>(sums.data()),
                  reinterpret_cast<const std::byte*>(values.data()), sums.size());
    }
  }

  Codec codec_;
  element_kind kind_;
  std::span<const extent> memory_;
  program_world world_;
  std::vector<segment> segments_;
  std::vector<std::size_t> shard_segments_;   // shard r: segments [r], [r + 1)
  std::vector<std::size_t> wire_pieces_;      // shard r: encoded bytes [r], [r + 1)
  std::vector<std::size_t> received_pieces_;  // what rank r contributes to the own shard
  extent wire_;                               // all shards encoded: first the own contribution, then the averages
  extent received_;                           // all contributions to the own shard
  std::span<float> sums_;
  std::span<float> converted_;
  std::size_t non_finite_ = 0;
};

}  // namespace gradweave::compression
