/// @file
/// The kernels' host twins: the same operations on memory of the host, by plain loops and with the same bits. They are what
/// tests compare kernels with, and what runs where a stream is emulated. Fast they are not.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <gradweave/device/arithmetic.hpp>
#include <gradweave/device/checks.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/float8_block.hpp>
#include <gradweave/element/loops.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

namespace detail {

/// 256 sums, one for each thread of a tile.
using tile_sums = std::array<scatter_summary, tile_threads>;

/// Their sum, pairwise: a thread adds what the thread half of the rest further on has.
inline scatter_summary pairwise_sum(tile_sums& sums) {
  for (std::size_t half = tile_threads / 2; half > 0; half /= 2) {
    for (std::size_t thread = 0; thread < half; ++thread) {
      add(sums[thread], sums[thread + half]);
    }
  }
  return sums[0];
}

/// What a scatter of these bytes finds out.
template <class T>
scatter_summary summarize(const std::byte* packed, std::size_t bytes) {
  tile_sums totals{};
  for (std::size_t tile = 0; tile < tiles_of(bytes); ++tile) {
    tile_sums sums{};
    const std::size_t begin = tile * tile_bytes;
    const std::size_t end = std::min(bytes, begin + tile_bytes);
    for (std::size_t at = begin; at < end; at += sizeof(T)) {
      add_square(sums[(at - begin) / word_bytes % tile_threads], load<T>(packed + at));
    }
    add(totals[tile % tile_threads], pairwise_sum(sums));
  }
  return pairwise_sum(totals);
}

/// The exponent of a block of values, as encode sees them.
template <class Float8>
std::int32_t exponent_of(std::span<const float> block) {
  std::uint32_t greatest = 0;
  for (const float value : block) {
    greatest = std::max(greatest, finite_magnitude(value));
  }
  return float8_exponent<Float8>(greatest);
}

/// One block, whose values hold the residual already. Returns how many are lost.
template <wire_format Format>
std::uint64_t encode_block(const encode_request& request, std::size_t begin, std::span<const float> values) {
  using element = typename wire_codec<Format>::element;
  std::int32_t exponent = 0;
  if constexpr (has_exponents(Format)) {
    exponent = exponent_of<element>(values);
    request.exponents[begin / float8_block_elements] = exponent;
  }
  std::uint64_t non_finite = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto encoded = encode_element<Format>(values[i], exponent);
    store(request.wire + (begin + i) * sizeof(element), encoded.value);
    if (request.residual != nullptr) {
      request.residual[begin + i] = encoded.residual;
    }
    non_finite += encoded.non_finite ? 1 : 0;
  }
  return non_finite;
}

template <wire_format Format>
float decode_at(const sum_request& request, std::size_t piece, std::size_t i) {
  using element = typename wire_codec<Format>::element;
  const std::byte* const from = request.wire + piece * request.wire_stride_bytes + i * sizeof(element);
  std::int32_t exponent = 0;
  if constexpr (has_exponents(Format)) {
    exponent = request.exponents[piece * request.exponent_stride_elements + i / float8_block_elements];
  }
  return wire_codec<Format>::decode(load<element>(from), exponent);
}

}  // namespace detail

/// What host_kernels are enqueued on: nothing, an operation is over when the call returns.
struct host_stream {
  friend bool operator==(host_stream, host_stream) = default;
};

/// Models device_kernels, on memory of the host.
struct host_kernels {
  using stream = host_stream;

  class extent_table {
   public:
    extent_table(std::vector<extent> extents, element_kind kind) : extents_(std::move(extents)), kind_(kind) {}

    std::span<const extent> extents() const { return extents_; }
    element_kind kind() const { return kind_; }

   private:
    std::vector<extent> extents_;
    element_kind kind_;
  };

  extent_table prepare(std::span<const extent> memory, element_kind kind) const {
    return {detail::checked_extents(memory, kind), kind};
  }

  void gather(stream, extent_table& table, std::byte* packed) const {
    detail::check_packed(packed);
    for (const extent& piece : table.extents()) {
      std::memcpy(packed + piece.offset, piece.memory, piece.bytes);
    }
  }

  /// With a summary the elements must be floating.
  void scatter(stream, extent_table& table, const std::byte* packed, scatter_summary* summary) const {
    detail::check_packed(packed);
    if (summary != nullptr) {
      detail::visit_floating(table.kind(), [&]<class T>(std::type_identity<T>) {
        *summary = detail::summarize<T>(packed, total_bytes(table.extents()));
      });
    }
    for (const extent& piece : table.extents()) {
      std::memcpy(piece.memory, packed + piece.offset, piece.bytes);
    }
  }

  void scale(stream, const scale_request& request) const {
    detail::check(request);
    detail::visit_floating(request.kind, [&]<class T>(std::type_identity<T>) {
      for (std::size_t i = 0; i < request.elements; ++i) {
        std::byte* const at = request.values + i * sizeof(T);
        detail::store(at, detail::scaled(detail::load<T>(at), request.factor));
      }
    });
  }

  void encode(stream, const encode_request& request) const {
    detail::check(request);
    detail::visit_format(request.format, [&]<wire_format Format>(std::integral_constant<wire_format, Format>) {
      std::array<float, float8_block_elements> values;
      std::uint64_t non_finite = 0;
      for (std::size_t begin = 0; begin < request.elements; begin += values.size()) {
        const std::size_t count = std::min(values.size(), request.elements - begin);
        for (std::size_t i = 0; i < count; ++i) {
          const float value = request.values[begin + i];
          values[i] = request.residual == nullptr ? value : detail::rounded_sum(value, request.residual[begin + i]);
        }
        non_finite += detail::encode_block<Format>(request, begin, {values.data(), count});
      }
      if (request.non_finite != nullptr) {
        *request.non_finite += non_finite;
      }
    });
  }

  void sum(stream, const sum_request& request) const {
    detail::check(request);
    detail::visit_format(request.format, [&]<wire_format Format>(std::integral_constant<wire_format, Format>) {
      // Piece by piece, so that no compiler may take it for one sum to reorder.
      for (std::size_t i = 0; i < request.elements; ++i) {
        request.sum[i] = detail::decode_at<Format>(request, 0, i);
      }
      for (std::size_t piece = 1; piece < request.pieces; ++piece) {
        for (std::size_t i = 0; i < request.elements; ++i) {
          request.sum[i] = detail::rounded_sum(request.sum[i], detail::decode_at<Format>(request, piece, i));
        }
      }
      for (std::size_t i = 0; i < request.elements; ++i) {
        request.sum[i] = detail::divided(request.sum[i], request.divisor);
      }
    });
  }

  void write_record(stream, const record_request& request) const {
    detail::check(request);
    *request.to = request.own;
    request.to->non_finite = std::exchange(*request.non_finite, 0);
  }

  void judge_records(stream, const judge_request& request) const {
    detail::check(request);
    *request.verdict = detail::verdict_on(request.records, request.ranks);
  }
};

}  // namespace gradweave
