/// @file
/// What kernels ask of requests, whatever they run on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::detail {

inline bool is_aligned(const void* pointer, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

/// The extents that hold something. Throws contract_violation where they leave gaps or cut elements.
inline std::vector<extent> checked_extents(std::span<const extent> memory, element_kind kind) {
  const std::size_t size = element_bytes(kind);
  std::vector<extent> kept;
  std::size_t offset = 0;
  for (const extent& piece : memory) {
    require(piece.offset == offset, "prepare: the extents' offsets must rise without gaps from 0");
    require(piece.bytes % size == 0 && is_aligned(piece.memory, size),
            "prepare: extents must begin and end between elements");
    offset += piece.bytes;
    if (piece.bytes != 0) {
      kept.push_back(piece);
    }
  }
  return kept;
}

inline void check_packed(const std::byte* packed) {
  require(is_aligned(packed, packed_alignment),
          "gather, scatter: the packed side must begin at a multiple of 16 bytes");
}

inline void check(const scale_request& request) {
  require(is_valid(request.kind) && is_floating(request.kind), "scale: only floating elements can be scaled");
}

inline void check(const encode_request& request) {
  require(!has_exponents(request.format) || request.exponents != nullptr || request.elements == 0,
          "encode: the format has exponents; say where to put them");
}

inline void check(const sum_request& request) {
  require(request.pieces > 0, "sum: needs a piece");
  require(request.divisor >= 1 && request.divisor <= divisor_max, "sum: the divisor must be 1 to 2^24");
  require(!has_exponents(request.format) || request.exponents != nullptr || request.elements == 0,
          "sum: the format has exponents; say where they are");
}

inline void check(const record_request& request) {
  require(request.non_finite != nullptr && request.to != nullptr,
          "write_record: say where the count is and where the record goes");
}

inline void check(const judge_request& request) {
  require(request.ranks > 0 && request.records != nullptr && request.verdict != nullptr,
          "judge_records: say where the records are and where the verdict goes");
}

}  // namespace gradweave::detail
