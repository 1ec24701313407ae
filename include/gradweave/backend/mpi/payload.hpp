/// @file
/// The payload of a collective that all ranks have entered: calls of MPI's, one after another, polled.
///
/// MPI works in place where a buffer lies in one piece in an arena. Else what a round takes is copied to memory of our own and
/// back. Derived datatypes would save these copies but not the walk over the pieces; MPI reduces none of them with operations
/// of its own; and where a collective is given up, MPI could still write into gradients that the program owns.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <mpi.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/backend/mpi/memory.hpp>
#include <gradweave/backend/mpi/rounds.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/combine.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::backend::mpi {

/// What one call of MPI's takes from, or puts to, each rank; and where that lies meanwhile.
class exchanged_parts {
 public:
  explicit exchanged_parts(int size) : counts_(static_cast<std::size_t>(size)), displacements_(counts_) {}

  /// `buffer` is where the parts belong; `in_place` if MPI may work there.
  void begin(std::span<const extent> buffer, std::size_t element, bool in_place) {
    buffer_ = buffer;
    element_ = element;
    in_place_ = in_place;
    packed_ = 0;
  }

  void set(int rank, element_range part) {
    const auto r = static_cast<std::size_t>(rank);
    counts_[r] = static_cast<int>(part.count * element_);
    displacements_[r] = static_cast<int>(in_place_ ? part.begin * element_ : packed_);
    packed_ += part.count * element_;
  }

  /// Where MPI works: in the buffer, or in `room`, which grows if need be.
  std::byte* base(memory& room) {
    if (in_place_) {
      return base_ = buffer_.empty() ? nullptr : buffer_.front().memory;
    }
    if (room.size() < packed_) {
      room = memory();  // given back first
      room = memory(packed_);
    }
    return base_ = room.data();
  }

  const int* counts() const { return counts_.data(); }
  const int* displacements() const { return displacements_.data(); }
  int count(int rank) const { return counts_[static_cast<std::size_t>(rank)]; }
  std::byte* at(int rank) const { return base_ + displacements_[static_cast<std::size_t>(rank)]; }

  /// Copies a part to where MPI works, or back.
  void pack(int rank, element_range part) const { copy<true>(rank, part); }
  void unpack(int rank, element_range part) const { copy<false>(rank, part); }

 private:
  template <bool Out>
  void copy(int rank, element_range part) const {
    if (!in_place_) {
      std::byte* packed = at(rank);
      for_each_piece(buffer_, part.begin * element_, part.count * element_, [&](std::byte* memory, std::size_t bytes) {
        Out ? std::memcpy(packed, memory, bytes) : std::memcpy(memory, packed, bytes);
        packed += bytes;
      });
    }
  }

  std::vector<int> counts_;         // bytes
  std::vector<int> displacements_;  // bytes
  std::span<const extent> buffer_;
  std::size_t element_ = 1;
  bool in_place_ = false;
  std::size_t packed_ = 0;
  std::byte* base_ = nullptr;
};

/// All calls with the turn; its memory must not move, MPI works on it.
class payload {
 public:
  /// `chunk_bytes` go from or to a rank in a round; what lies further than `count_max` bytes from a buffer's beginning is
  /// copied, since MPI is told of positions as ints.
  payload(MPI_Comm communicator, int rank, int size, std::size_t chunk_bytes, std::size_t count_max,
          std::shared_ptr<arena_list> arenas)
      : communicator_(communicator),
        rank_(rank),
        size_(size),
        chunk_bytes_(chunk_bytes),
        count_max_(count_max),
        arenas_(std::move(arenas)),
        out_(size),
        in_(size) {}
  payload(const payload&) = delete;
  payload& operator=(const payload&) = delete;

  /// What `request` refers to must live until advance() has returned true. `largest_piece` is of any rank.
  void begin(const collective_request& request, std::size_t largest_piece) {
    request_ = request;
    element_ = element_bytes(request.kind);
    added_ = request.reduce.operation == reduction_operation::sum ? added_by_mpi(request.kind) : std::nullopt;
    rounds_.begin(request, size_, !added_, largest_piece, chunk_bytes_);
    gathers_ = false;
  }

  /// Gets on as far as it can. True once the collective is complete. Throws sync_error where MPI fails.
  bool advance() {
    for (;;) {
      if (posted_) {
        if (!is_quiet()) {
          return false;
        }
        posted_ = false;
        ++steps_;
        finish();
      }
      if (rounds_.are_over()) {
        return true;
      }
      arenas_->set_busy(true);
      posted_ = true;
      post();
    }
  }

  /// Whether MPI is done with what it was told to do; this lets it get on. Throws sync_error where MPI fails.
  bool is_quiet() {
    int done = 0;
    check(MPI_Test(&pending_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    arenas_->set_busy(done == 0);
    return done != 0;
  }
  /// Calls that are complete, of all collectives.
  std::uint64_t steps() const { return steps_; }

 private:
  bool in_pieces() const { return request_.operation == collective::all_reduce && !added_; }

  void post() {
    switch (request_.operation) {
      case collective::all_reduce: in_pieces() ? post_in_pieces() : post_sum(); break;
      case collective::reduce_scatter: post_exchange(request_.data, rounds_.pieces()); break;
      case collective::all_to_all: post_exchange(request_.source, request_.source_pieces); break;
      case collective::all_gather: post_all_gather(); break;
      case collective::gather: post_gather(); break;
      case collective::broadcast: post_broadcast(); break;
      case collective::barrier: break;
    }
  }

  void finish() {
    switch (request_.operation) {
      case collective::all_reduce: finish_all_reduce(); return;
      case collective::reduce_scatter: combine_own(); break;
      case collective::all_to_all: unpack_all(request_.pieces); break;
      case collective::all_gather: unpack_all(rounds_.pieces()); break;
      case collective::gather:
        if (rank_ == request_.root) {
          unpack_all(rounds_.pieces());
        }
        break;
      case collective::broadcast:
        if (rank_ != request_.root) {
          in_.unpack(0, whole());
        }
        break;
      case collective::barrier: break;
    }
    rounds_.next();
  }

  // ---- sums ---------------------------------------------------------------------------------------------------------

  void post_sum() {
    const element_range part = begin_whole();
    in_.pack(0, part);
    check(MPI_Iallreduce(MPI_IN_PLACE, in_.at(0), static_cast<int>(part.count), *added_, MPI_SUM, communicator_,
                         &pending_),
          "MPI_Iallreduce");
  }

  /// Two phases: each rank adds all ranks' parts of its own piece, and then all gather the sums.
  void post_in_pieces() { gathers_ ? post_all_gather() : post_exchange(request_.data, rounds_.pieces()); }

  void finish_all_reduce() {
    if (!in_pieces()) {
      divide(request_.kind, in_.at(0), whole().count, request_.reduce.divisor);
      in_.unpack(0, whole());
    } else if (!gathers_) {
      combine_own();
      gathers_ = true;
      return;
    } else {
      unpack_all(rounds_.pieces());
      gathers_ = false;
    }
    rounds_.next();
  }

  /// All ranks' parts of the own piece have come; they are added in rank order.
  void combine_own() {
    const element_range own = rounds_.part(rounds_.pieces(), rank_);
    std::size_t offset = 0;
    for_each_piece(request_.data, own.begin * element_, own.count * element_, [&](std::byte* to, std::size_t bytes) {
      // `combine` takes no more arrays than that at once.
      for (int begin = 0; begin < size_;) {
        const bool first = begin == 0;
        const int end = std::min(size_, begin + static_cast<int>(combine_sources_max) - (first ? 0 : 1));
        sources_.clear();
        if (!first) {
          sources_.push_back(to);
        }
        for (int r = begin; r < end; ++r) {
          sources_.push_back(in_.at(r) + offset);
        }
        const std::array targets = {to};
        combine({request_.reduce.operation, end == size_ ? request_.reduce.divisor : 1}, request_.kind, sources_,
                targets, bytes / element_);
        begin = end;
      }
      offset += bytes;
    });
  }

  // ---- exchanges ----------------------------------------------------------------------------------------------------

  /// From each rank's piece of `source`; to the own piece's parts of all ranks, or for an all-to-all to where they belong.
  void post_exchange(std::span<const extent> source, std::span<const std::size_t> pieces) {
    const bool reduces = request_.operation != collective::all_to_all;
    out_.begin(source, element_, may_work_on(source));
    in_.begin(request_.data, element_, !reduces && may_work_on(request_.data));
    for (int r = 0; r < size_; ++r) {
      out_.set(r, rounds_.part(pieces, r));
      in_.set(r, reduces ? rounds_.part(pieces, rank_) : rounds_.part(request_.pieces, r));
    }
    std::byte* const from = out_.base(room_out_);
    for (int r = 0; r < size_; ++r) {
      out_.pack(r, rounds_.part(pieces, r));
    }
    check(MPI_Ialltoallv(from, out_.counts(), out_.displacements(), MPI_BYTE, in_.base(room_in_), in_.counts(),
                         in_.displacements(), MPI_BYTE, communicator_, &pending_),
          "MPI_Ialltoallv");
  }

  void post_all_gather() {
    begin_parts(true);
    in_.pack(rank_, rounds_.part(rounds_.pieces(), rank_));
    check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, base_, in_.counts(), in_.displacements(), MPI_BYTE,
                          communicator_, &pending_),
          "MPI_Iallgatherv");
  }

  void post_gather() {
    const bool is_root = rank_ == request_.root;
    begin_parts(is_root);
    in_.pack(rank_, rounds_.part(rounds_.pieces(), rank_));
    check(is_root ? MPI_Igatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, base_, in_.counts(), in_.displacements(), MPI_BYTE,
                                 request_.root, communicator_, &pending_)
                  : MPI_Igatherv(in_.at(rank_), in_.count(rank_), MPI_BYTE, nullptr, nullptr, nullptr, MPI_BYTE,
                                 request_.root, communicator_, &pending_),
          "MPI_Igatherv");
  }

  void post_broadcast() {
    const element_range part = begin_whole();
    if (rank_ == request_.root) {
      in_.pack(0, part);
    }
    check(MPI_Ibcast(in_.at(0), in_.count(0), MPI_BYTE, request_.root, communicator_, &pending_), "MPI_Ibcast");
  }

  void unpack_all(std::span<const std::size_t> pieces) {
    for (int r = 0; r < size_; ++r) {
      if (r != rank_ || request_.operation == collective::all_to_all) {
        in_.unpack(r, rounds_.part(pieces, r));
      }
    }
  }

  // ---- where MPI works ----------------------------------------------------------------------------------------------

  element_range whole() const { return rounds_.whole(total_bytes(request_.data) / element_); }

  /// What a round takes of a buffer that is not cut into pieces.
  element_range begin_whole() {
    const element_range part = whole();
    const auto there = first_piece(request_.data, part.begin * element_, part.count * element_);
    const bool in_place = there.size() == part.count * element_ && arenas_->holds(there);
    piece_ = {there.data(), there.size(), 0};
    in_.begin(in_place ? std::span<const extent>(&piece_, 1) : request_.data, element_, in_place);
    in_.set(0, {0, part.count});
    in_.base(room_in_);
    return part;
  }

  /// Each rank's part of `data`, or without `all` only the own.
  void begin_parts(bool all) {
    in_.begin(request_.data, element_, may_work_on(request_.data));
    for (int r = 0; r < size_; ++r) {
      const element_range part = rounds_.part(rounds_.pieces(), r);
      in_.set(r, {part.begin, all || r == rank_ ? part.count : 0});
    }
    base_ = in_.base(room_in_);
  }

  bool may_work_on(std::span<const extent> buffer) const {
    return buffer.size() == 1 && buffer.front().bytes <= count_max_ &&
           arenas_->holds(std::span<const std::byte>(buffer.front().memory, buffer.front().bytes));
  }

  MPI_Comm communicator_;
  int rank_;
  int size_;
  std::size_t chunk_bytes_;
  std::size_t count_max_;
  std::shared_ptr<arena_list> arenas_;
  MPI_Request pending_ = MPI_REQUEST_NULL;
  bool posted_ = false;  // a call whose end has not been looked after
  collective_request request_;
  std::size_t element_ = 1;
  std::optional<MPI_Datatype> added_;
  rounds rounds_;
  bool gathers_ = false;  // the second phase of a round in pieces
  exchanged_parts out_;
  exchanged_parts in_;
  memory room_out_;
  memory room_in_;
  std::byte* base_ = nullptr;
  extent piece_;
  std::vector<const std::byte*> sources_;
  std::uint64_t steps_ = 0;
};

}  // namespace gradweave::backend::mpi
