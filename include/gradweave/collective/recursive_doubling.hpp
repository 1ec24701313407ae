/// @file
/// Recursive doubling: in round k a rank exchanges its whole buffer with the rank 2^k away and both reduce. log2 N rounds,
/// the fewest that there can be, of the whole buffer each: for small ones (Thakur, Rabenseifner and Gropp, Optimization of
/// collective communication operations in MPICH, IJHPCA 2005, section 4).
///
/// Where the world is no power of two, the first ranks pair up before: one of each pair gives its elements to the other
/// and gets the result at the end. That makes two rounds more.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <span>

#include <gradweave/collective/schedule.hpp>

namespace gradweave {

/// How a world is folded to `size` = the greatest power of two ranks in it. Of the first 2 (N - size) ranks each even one
/// is folded into its odd neighbour.
class folded_world {
 public:
  explicit folded_world(schedule_world world)
      : world_(world), size_(static_cast<int>(std::bit_floor(static_cast<unsigned>(world.size)))) {}

  int size() const { return size_; }
  /// Ranks that are folded away.
  int surplus() const { return world_.size - size_; }
  bool is_paired() const { return world_.rank < 2 * surplus(); }
  bool is_folded_away() const { return is_paired() && world_.rank % 2 == 0; }
  /// The other rank of the pair.
  int neighbour() const { return world_.rank ^ 1; }
  /// The own number among those that remain.
  int position() const { return is_paired() ? world_.rank / 2 : world_.rank - surplus(); }
  /// Who has that number.
  int rank_at(int position) const { return position < surplus() ? 2 * position + 1 : position + surplus(); }

 private:
  schedule_world world_;
  int size_;
};

/// All ranks add in the same order, so they get the same bits. Needs as much scratch as there are elements.
inline void recursive_doubling_all_reduce(schedule_world world, std::size_t elements, schedule& out) {
  const folded_world folded(world);
  const operand own{operand_buffer::data, 0, elements};
  const operand other{operand_buffer::scratch, 0, elements};
  if (folded.is_folded_away()) {
    const schedule::index sent = out.send(folded.neighbour(), own);
    out.receive(folded.neighbour(), own, {sent});
    return;
  }
  std::array<schedule::index, 2> ready{};  // what has to be done before the next round may send, and receive
  std::size_t send_after = 0, receive_after = 0;
  if (folded.is_paired()) {
    ready[0] = out.receive_reduce(folded.neighbour(), own);
    send_after = 1;
  }
  for (int distance = 1; distance < folded.size(); distance *= 2) {
    const int peer = folded.rank_at(folded.position() ^ distance);
    const schedule::index sent = out.send(peer, own, std::span(ready).first(send_after));
    const schedule::index received = out.receive(peer, other, std::span(ready).first(receive_after));
    const std::array lower_first = {own, other};
    const std::array upper_first = {other, own};
    ready[0] =
        out.reduce((folded.position() & distance) == 0 ? lower_first : upper_first, {&own, 1}, false, {sent, received});
    send_after = receive_after = 1;
  }
  const schedule::index divided = out.divide(own);  // local like the last reduce, so after it
  if (folded.is_paired()) {
    out.send(folded.neighbour(), own, {divided});
  }
}

}  // namespace gradweave
