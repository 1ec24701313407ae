/// @file
/// A collective as data: what one rank does, as a small graph of steps. Pure functions generate schedules; a proof, an
/// executor and a simulator read them.
///
/// A rank's steps are split over channels: one to each peer, one from each peer, and one for local work. Steps of a
/// channel run in the order in which they were added; steps of different channels wait for each other only where a
/// dependency says so. The n-th send from a to b meets the n-th receive at b from a.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace gradweave {

enum class step_kind : std::uint8_t {
  send,            ///< `source` to `peer`
  receive,         ///< from `peer` into `target`
  receive_reduce,  ///< from `peer`, combined into `target` with the request's reduction
  copy,            ///< `source` to `target`
  divide,          ///< `target` by the request's divisor
};

/// A schedule's operands: the request's two buffers, and memory of the executor's own.
enum class operand_buffer : std::uint8_t { data, source, scratch };

/// `count` elements from element `begin` on.
struct operand {
  operand_buffer buffer = operand_buffer::data;
  std::size_t begin = 0;
  std::size_t count = 0;
  friend bool operator==(const operand&, const operand&) = default;
};

struct schedule_step {
  step_kind kind = step_kind::copy;
  int peer = -1;
  operand source;
  operand target;
  std::uint32_t dependencies_begin = 0;
  std::uint32_t dependencies_count = 0;
};

/// Which rank of how many a schedule is for.
struct schedule_world {
  int rank = 0;
  int size = 1;

  /// The rank `distance` behind (negative) or ahead on the ring.
  constexpr int neighbour(int distance) const { return ((rank + distance) % size + size) % size; }
};

/// Steps with their dependencies. Keeps its capacity when cleared, so that making one a step allocates nothing.
class schedule {
 public:
  using index = std::uint32_t;

  void clear() {
    steps_.clear();
    dependencies_.clear();
    scratch_elements_ = 0;
  }

  index send(int peer, operand source, std::initializer_list<index> after = {}) {
    return add({step_kind::send, peer, source, {}}, after);
  }
  index receive(int peer, operand target, std::initializer_list<index> after = {}) {
    return add({step_kind::receive, peer, {}, target}, after);
  }
  index receive_reduce(int peer, operand target, std::initializer_list<index> after = {}) {
    return add({step_kind::receive_reduce, peer, {}, target}, after);
  }
  index copy(operand source, operand target, std::initializer_list<index> after = {}) {
    return add({step_kind::copy, -1, source, target}, after);
  }
  index divide(operand target, std::initializer_list<index> after = {}) {
    return add({step_kind::divide, -1, {}, target}, after);
  }

  /// The step that the next call will add.
  index next() const { return static_cast<index>(steps_.size()); }

  std::span<const schedule_step> steps() const { return steps_; }
  std::span<schedule_step> steps() { return steps_; }
  std::span<const index> dependencies(const schedule_step& step) const {
    return std::span(dependencies_).subspan(step.dependencies_begin, step.dependencies_count);
  }

  /// How many elements of scratch its operands reach into.
  std::size_t scratch_elements() const { return scratch_elements_; }

 private:
  index add(schedule_step step, std::initializer_list<index> after) {
    step.dependencies_begin = static_cast<std::uint32_t>(dependencies_.size());
    step.dependencies_count = static_cast<std::uint32_t>(after.size());
    dependencies_.insert(dependencies_.end(), after.begin(), after.end());
    for (const operand& range : {step.source, step.target}) {
      if (range.buffer == operand_buffer::scratch) {
        scratch_elements_ = std::max(scratch_elements_, range.begin + range.count);
      }
    }
    steps_.push_back(step);
    return static_cast<index>(steps_.size() - 1);
  }

  std::vector<schedule_step> steps_;
  std::vector<index> dependencies_;
  std::size_t scratch_elements_ = 0;
};

/// Piece `r` of `buffer`, as `pieces` (size + 1 rising positions) cuts it.
inline operand piece_of(std::span<const std::size_t> pieces, int r, operand_buffer buffer = operand_buffer::data) {
  const auto i = static_cast<std::size_t>(r);
  return {buffer, pieces[i], pieces[i + 1] - pieces[i]};
}

/// Cuts `elements` into `size` pieces of nearly equal length, at multiples of 16 elements so that vector code starts
/// aligned. The last pieces may be shorter, or empty.
inline void cut_evenly(std::size_t elements, int size, std::vector<std::size_t>& pieces) {
  constexpr std::size_t granule = 16;
  const auto n = static_cast<std::size_t>(size);
  const std::size_t share = ((elements + n - 1) / n + granule - 1) / granule * granule;
  pieces.clear();
  for (std::size_t r = 0; r <= n; ++r) {
    pieces.push_back(std::min(elements, r * share));
  }
}

}  // namespace gradweave
