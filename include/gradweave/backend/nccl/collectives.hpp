/// @file
/// A collective as NCCL's calls: one, or a group of them, which NCCL launches as one.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <optional>
#include <span>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::detail {

/// What NCCL calls the elements that it reduces; it knows none of 16 bits that are whole numbers.
constexpr std::optional<ncclDataType_t> nccl_type(element_kind kind) {
  switch (kind) {
    case element_kind::float32: return ncclFloat32;
    case element_kind::float64: return ncclFloat64;
    case element_kind::float16: return ncclFloat16;
    case element_kind::bfloat16: return ncclBfloat16;
    case element_kind::int8: return ncclInt8;
    case element_kind::int32: return ncclInt32;
    case element_kind::int64: return ncclInt64;
    case element_kind::uint8: return ncclUint8;
    case element_kind::uint32: return ncclUint32;
    case element_kind::uint64: return ncclUint64;
    default: return std::nullopt;
  }
}

constexpr ncclRedOp_t nccl_operation(reduction_operation operation) {
  switch (operation) {
    case reduction_operation::sum: return ncclSum;
    case reduction_operation::min: return ncclMin;
    case reduction_operation::max: return ncclMax;
  }
  violate("nccl: not a reduction operation");
}

/// Calls that NCCL launches as one. Of several errors the first is kept; the group is ended in any case.
class nccl_group {
 public:
  nccl_group() : result_(ncclGroupStart()) {}
  nccl_group(const nccl_group&) = delete;
  nccl_group& operator=(const nccl_group&) = delete;

  void add(ncclResult_t code) { result_ = is_nccl_error(result_) ? result_ : code; }

  ncclResult_t end() {
    const ncclResult_t ended = ncclGroupEnd();
    return is_nccl_error(result_) ? result_ : ended;
  }

 private:
  ncclResult_t result_;
};

/// The ranks of a communicator, and what a collective is launched on.
struct nccl_launch {
  const collective_request& request;
  int rank;
  int size;
  ncclRedOp_t operation;
  ncclComm_t communicator;
  cudaStream_t stream;

  std::size_t width() const { return element_bytes(request.kind); }
  std::size_t begin_of(int r) const { return request.pieces[static_cast<std::size_t>(r)] * width(); }
  std::size_t bytes_of(int r) const { return begin_of(r + 1) - begin_of(r); }

  /// Whether all pieces have one length and lie one behind another in one place: NCCL has a call for that.
  bool is_even() const {
    for (int r = 1; r < size; ++r) {
      if (bytes_of(r) != bytes_of(0)) {
        return false;
      }
    }
    return request.data.size() == 1 && begin_of(0) == 0;
  }

  ncclResult_t all_reduce() const {
    nccl_group group;
    for (const extent& piece : request.data) {
      group.add(ncclAllReduce(piece.memory, piece.memory, piece.bytes / width(), *nccl_type(request.kind), operation,
                              communicator, stream));
    }
    return group.end();
  }

  ncclResult_t broadcast() const {
    nccl_group group;
    for (const extent& piece : request.data) {
      group.add(ncclBroadcast(piece.memory, piece.memory, piece.bytes, ncclUint8, request.root, communicator, stream));
    }
    return group.end();
  }

  /// Uneven pieces are reduced one by one, each to its rank.
  ncclResult_t reduce_scatter() const {
    const ncclDataType_t type = *nccl_type(request.kind);
    if (is_even()) {
      std::byte* const all = request.data[0].memory;
      return ncclReduceScatter(all, all + begin_of(rank), bytes_of(0) / width(), type, operation, communicator, stream);
    }
    nccl_group group;
    for (int r = 0; r < size; ++r) {
      for_each_piece(request.data, begin_of(r), bytes_of(r), [&](std::byte* memory, std::size_t bytes) {
        group.add(ncclReduce(memory, memory, bytes / width(), type, operation, r, communicator, stream));
      });
    }
    return group.end();
  }

  /// Uneven pieces are broadcast one by one, each by its rank.
  ncclResult_t all_gather() const {
    if (is_even()) {
      std::byte* const all = request.data[0].memory;
      return ncclAllGather(all + begin_of(rank), all, bytes_of(0), ncclUint8, communicator, stream);
    }
    nccl_group group;
    for (int r = 0; r < size; ++r) {
      for_each_piece(request.data, begin_of(r), bytes_of(r), [&](std::byte* memory, std::size_t bytes) {
        group.add(ncclBroadcast(memory, memory, bytes, ncclUint8, r, communicator, stream));
      });
    }
    return group.end();
  }

  ncclResult_t all_to_all() const {
    nccl_group group;
    for (int r = 0; r < size; ++r) {
      const std::span<std::byte> out = piece_of(request.source, request.source_pieces, r);
      const std::span<std::byte> in = piece_of(request.data, request.pieces, r);
      if (!out.empty()) {
        group.add(ncclSend(out.data(), out.size(), ncclUint8, r, communicator, stream));
      }
      if (!in.empty()) {
        group.add(ncclRecv(in.data(), in.size(), ncclUint8, r, communicator, stream));
      }
    }
    return group.end();
  }

  /// What is exchanged with rank r; shorter than it should be where it does not lie in one place.
  std::span<std::byte> piece_of(std::span<const extent> buffer, std::span<const std::size_t> positions, int r) const {
    const std::size_t begin = positions[static_cast<std::size_t>(r)];
    return first_piece(buffer, begin * width(), (positions[static_cast<std::size_t>(r) + 1] - begin) * width());
  }

  ncclResult_t run() const {
    switch (request.operation) {
      case collective::all_reduce: return all_reduce();
      case collective::reduce_scatter: return reduce_scatter();
      case collective::all_gather: return all_gather();
      case collective::all_to_all: return all_to_all();
      case collective::broadcast: return broadcast();
      default: violate("nccl: a collective that this backend does not offer");
    }
  }

  /// What run() takes for granted. Throws contract_violation.
  void check() const {
    constexpr collective_set with_pieces = {collective::reduce_scatter, collective::all_gather, collective::all_to_all};
    constexpr collective_set offered = with_pieces | collective_set{collective::all_reduce, collective::broadcast};
    const auto positions = static_cast<std::size_t>(size) + 1;
    require(offered.contains(request.operation), "nccl: a collective that this backend does not offer");
    require(!with_pieces.contains(request.operation) || request.pieces.size() == positions,
            "nccl: pieces must hold a position a rank, and the end");
    require(request.root >= 0 && request.root < size, "nccl: there is no such root");
    if (request.operation == collective::all_reduce || request.operation == collective::reduce_scatter) {
      check_reduction();
    }
    if (request.operation == collective::all_to_all) {
      require(request.source_pieces.size() == positions,
              "nccl: source_pieces must hold a position a rank, and the end");
      for (int r = 0; r < size; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const bool is_whole = piece_of(request.data, request.pieces, r).size() == bytes_of(r) &&
                              piece_of(request.source, request.source_pieces, r).size() ==
                                  (request.source_pieces[at + 1] - request.source_pieces[at]) * width();
        require(is_whole, "nccl: what two ranks exchange in an all_to_all must lie in one extent on either side");
      }
    }
  }

 private:
  void check_reduction() const {
    require(nccl_type(request.kind).has_value(), "nccl: NCCL reduces no 16-bit integers");
    require(request.reduce.divisor == 1 || is_floating(request.kind), "nccl: only floating elements can be averaged");
    require(request.reduce.divisor >= 1 && request.reduce.divisor <= divisor_max,
            "nccl: the divisor must be 1 to 2^24");
    for (const extent& piece : request.data) {
      require(piece.bytes % width() == 0, "nccl: extents must begin and end between elements");
    }
  }
};

/// What this rank sends, if each collective is a ring, which NCCL does not tell.
inline std::uint64_t ring_bytes(const nccl_launch& launch) {
  const auto size = static_cast<std::uint64_t>(launch.size);
  const std::uint64_t bytes = total_bytes(launch.request.data);
  switch (launch.request.operation) {
    case collective::all_reduce: return 2 * (bytes - bytes / size);
    case collective::broadcast: return (launch.rank + 1) % launch.size == launch.request.root ? 0 : bytes;
    case collective::all_to_all:
      return total_bytes(launch.request.source) -
             launch.piece_of(launch.request.source, launch.request.source_pieces, launch.rank).size();
    default: return bytes - launch.bytes_of(launch.rank);
  }
}

}  // namespace gradweave::detail
