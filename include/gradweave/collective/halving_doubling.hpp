/// @file
/// Recursive halving and doubling (Rabenseifner, Optimization of collective reduction operations, ICCS 2004): in each
/// round a rank keeps half of what it has left, sends the other half to the rank 2^k away and gets the same from there;
/// then the same way back with the results. 2 log2 N rounds, and each element travels as seldom as in a ring:
/// 2 (N-1)/N of the buffer a rank.
///
/// Where the world is no power of two, it is folded first (see folded_world): then a pair sends the buffer once more
/// each way.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include <gradweave/collective/recursive_doubling.hpp>
#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// `pieces` cuts the buffer for as many ranks as remain after folding.
inline void halving_doubling_all_reduce(schedule_world world, std::span<const std::size_t> pieces, schedule& out) {
  const folded_world folded(world);
  const operand whole{operand_buffer::data, 0, pieces.back()};
  if (folded.is_folded_away()) {
    const schedule::index sent = out.send(folded.neighbour(), whole);
    out.receive(folded.neighbour(), whole, {sent});
    return;
  }
  // Pieces [first, last) are those that this rank is still responsible for.
  const auto range = [&](int first, int last) {
    const std::size_t begin = pieces[static_cast<std::size_t>(first)];
    return operand{operand_buffer::data, begin, pieces[static_cast<std::size_t>(last)] - begin};
  };
  std::array<schedule::index, 33> ready{};  // what has to be done before a round may send
  std::size_t count = 0;
  if (folded.is_paired()) {
    ready[count++] = out.receive_reduce(folded.neighbour(), whole);
  }
  int first = 0;
  int last = folded.size();
  for (int distance = 1; distance < folded.size(); distance *= 2) {
    const int peer = folded.rank_at(folded.position() ^ distance);
    const int middle = first + (last - first) / 2;
    const bool keeps_lower = (folded.position() & distance) == 0;
    out.send(peer, keeps_lower ? range(middle, last) : range(first, middle), std::span(ready).first(count));
    (keeps_lower ? last : first) = middle;
    ready[0] = out.receive_reduce(peer, range(first, last), std::span(ready).first(count));
    count = 1;
  }
  ready[0] = out.divide(range(first, last), std::span(ready).first(count));
  count = 1;
  schedule::index undone = ready[0];
  for (int distance = folded.size() / 2; distance >= 1; distance /= 2) {
    const int peer = folded.rank_at(folded.position() ^ distance);
    const int length = last - first;
    const bool kept_lower = (folded.position() & distance) == 0;
    out.send(peer, range(first, last), std::span(ready).first(count));
    // What comes was sent as a partial sum in the round that is now undone, two steps a round: it must have left.
    undone -= 2;
    const operand got = kept_lower ? range(last, last + length) : range(first - length, first);
    ready[count++] = out.receive(peer, got, {undone});
    (kept_lower ? last : first) += kept_lower ? length : -length;
  }
  if (folded.is_paired()) {
    out.send(folded.neighbour(), whole, std::span(ready).first(count));
  }
}

}  // namespace gradweave
