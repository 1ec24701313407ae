/// @file
/// How the payload of a collective is cut into rounds, so that no call of MPI's, whose counts are ints, is told of too much,
/// and memory beside the gradients is bounded.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::backend::mpi {

/// Elements of a buffer.
struct element_range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// The rounds of one collective, the same on all ranks. In a round each rank's piece gets on by up to `window` elements.
class rounds {
 public:
  /// `reduces_in_pieces`: an all-reduce that is a reduce-scatter and an all-gather. `largest_piece` is of any rank, for an
  /// all-to-all. `chunk_bytes` go from or to a rank in a round, or an element a piece.
  void begin(const collective_request& request, int size, bool reduces_in_pieces, std::size_t largest_piece,
             std::size_t chunk_bytes) {
    const std::size_t bytes = element_bytes(request.kind);
    const std::size_t elements = total_bytes(request.data) / bytes;
    round_ = 0;
    pieces_.clear();
    std::size_t longest = largest_piece;
    std::size_t pieces = 1;
    switch (request.operation) {
      case collective::barrier: longest = 0; break;
      case collective::broadcast: longest = elements; break;
      case collective::all_reduce:
        longest = elements;
        if (reduces_in_pieces) {
          cut_evenly(elements, size, pieces_);
        }
        break;
      case collective::all_to_all: pieces = static_cast<std::size_t>(size); break;
      default: pieces_.assign(request.pieces.begin(), request.pieces.end()); break;
    }
    if (!pieces_.empty()) {
      pieces = static_cast<std::size_t>(size);
      longest = 0;
      for (std::size_t r = 0; r + 1 < pieces_.size(); ++r) {
        longest = std::max(longest, pieces_[r + 1] - pieces_[r]);
      }
    }
    window_ = std::max<std::size_t>(1, chunk_bytes / pieces / bytes);
    count_ = (longest + window_ - 1) / window_;
  }

  bool are_over() const { return round_ == count_; }
  void next() { ++round_; }

  /// Of what is not cut into pieces, in this round.
  element_range whole(std::size_t elements) const {
    const std::size_t begin = std::min(elements, round_ * window_);
    return {begin, std::min(window_, elements - begin)};
  }

  /// Of one rank's piece, in this round.
  element_range part(std::span<const std::size_t> pieces, int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    const element_range within = whole(pieces[r + 1] - pieces[r]);
    return {pieces[r] + within.begin, within.count};
  }

  /// Each rank's piece, as all ranks cut the buffer.
  std::span<const std::size_t> pieces() const { return pieces_; }

 private:
  std::size_t window_ = 1;  // elements
  std::size_t count_ = 0;
  std::size_t round_ = 0;
  std::vector<std::size_t> pieces_;
};

}  // namespace gradweave::backend::mpi
