/// @file
/// What a set of schedules claims to compute: what ranks hold before a collective and after it, in symbols.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/symbolic_memory.hpp>

namespace gradweave {

/// What a set of schedules claims to compute.
struct collective_claim {
  collective operation = collective::barrier;
  int root = 0;
  std::size_t elements = 0;                                  ///< all_reduce, broadcast
  std::vector<std::vector<std::size_t>> pieces = {};         ///< a row a rank: its cut of `data`
  std::vector<std::vector<std::size_t>> source_pieces = {};  ///< a row a rank: its cut of `source` (all_to_all)
};

namespace detail {

/// A range that holds one value.
struct symbolic_content {
  operand range;
  symbolic_value value;
};

/// The ranges that mean something on `rank` before the collective.
inline std::vector<symbolic_content> content_before(const collective_claim& claim, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const auto own = [&](operand range) {
    return std::vector<symbolic_content>{{range, symbolic_value::of(rank, range.buffer)}};
  };
  switch (claim.operation) {
    case collective::all_reduce: return own({operand_buffer::data, 0, claim.elements});
    case collective::reduce_scatter: return own({operand_buffer::data, 0, claim.pieces[r].back()});
    case collective::all_gather:
    case collective::gather: return own(piece_of(claim.pieces[r], rank));
    case collective::all_to_all: return own({operand_buffer::source, 0, claim.source_pieces[r].back()});
    case collective::broadcast:
      return rank == claim.root ? own({operand_buffer::data, 0, claim.elements}) : std::vector<symbolic_content>{};
    case collective::barrier: break;
  }
  return own({operand_buffer::scratch, 0, 1});  // the token
}

/// What `rank` of `size` must hold afterwards. Of a barrier, nothing.
inline std::vector<symbolic_content> content_after(const collective_claim& claim, int rank, int size) {
  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  const symbolic_value average{{{operand_buffer::data, 0, 0, size}}, 1, false};
  std::vector<symbolic_content> expected;
  switch (claim.operation) {
    case collective::all_reduce: return {{{operand_buffer::data, 0, claim.elements}, average}};
    case collective::reduce_scatter: return {{piece_of(claim.pieces[at(rank)], rank), average}};
    case collective::all_gather:
    case collective::gather:
      for (int from = 0; from < size; ++from) {
        if (claim.operation == collective::all_gather || rank == claim.root || from == rank) {
          expected.push_back({piece_of(claim.pieces[at(rank)], from), symbolic_value::of(from, operand_buffer::data)});
        }
      }
      break;
    case collective::all_to_all:
      for (int from = 0; from < size; ++from) {
        const operand here = piece_of(claim.pieces[at(rank)], from);
        const operand there = piece_of(claim.source_pieces[at(from)], rank, operand_buffer::source);
        const auto shift = static_cast<std::ptrdiff_t>(there.begin) - static_cast<std::ptrdiff_t>(here.begin);
        expected.push_back({here, symbolic_value::of(from, operand_buffer::source, shift)});
      }
      break;
    case collective::broadcast:
      return {{{operand_buffer::data, 0, claim.elements}, symbolic_value::of(claim.root, operand_buffer::data)}};
    case collective::barrier: break;
  }
  return expected;
}

}  // namespace detail

}  // namespace gradweave
