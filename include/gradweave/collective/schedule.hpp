/// @file
/// A collective as data: what one rank does, as a small graph of steps. Pure functions generate schedules; a proof, an
/// executor and a simulator read them.
///
/// A rank's steps are split over channels: one to each peer, one from each peer, and one for local work. Steps of a
/// channel run in the order in which they were added; steps of different channels wait for each other only where a
/// dependency says so. The n-th send from a to b meets the n-th receive at b from a.
///
/// Ranks that share memory need not send: a rank lends a peer part of a buffer, the peer reads or writes it in place and
/// gives it back. A loan begins when its owner enters the collective, so it waits for nothing; there is one at most from
/// a rank to another.
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
  reduce,          ///< `sources` combined in their order, divided where the step `divides`, into each of `targets`
  lend,            ///< `source` to `peer` for reading, `target` for writing, or both, the same; done once given back
  give_back,       ///< to `peer`: what it lent is no longer touched
};

/// A schedule's operands: the request's two buffers, and memory of the executor's own.
enum class operand_buffer : std::uint8_t { data, source, scratch };

/// `count` elements from element `begin` on: of a buffer, or of what `lender` lends, whichever buffer that is in.
struct operand {
  operand_buffer buffer = operand_buffer::data;
  std::size_t begin = 0;
  std::size_t count = 0;
  int lender = -1;  ///< -1: of the own buffer

  constexpr std::size_t end() const { return begin + count; }
  friend bool operator==(const operand&, const operand&) = default;
};

struct schedule_step {
  step_kind kind = step_kind::copy;
  int peer = -1;
  operand source;
  operand target;
  bool divides = false;
  std::uint32_t dependencies_begin = 0;
  std::uint32_t dependencies_count = 0;
  std::uint32_t operands_begin = 0;  // of a reduce: its sources, then its targets
  std::uint32_t sources_count = 0;
  std::uint32_t targets_count = 0;
};

/// The channel that a step runs in: steps to p are channel p, steps from p channel size + p, and local work is the last
/// of 2 size + 1.
constexpr std::size_t channel_of(const schedule_step& step, std::size_t size) {
  switch (step.kind) {
    case step_kind::send:
    case step_kind::give_back: return static_cast<std::size_t>(step.peer);
    case step_kind::receive:
    case step_kind::receive_reduce:
    case step_kind::lend: return size + static_cast<std::size_t>(step.peer);
    case step_kind::copy:
    case step_kind::divide:
    case step_kind::reduce: break;
  }
  return 2 * size;
}

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

  /// The steps that a new one waits for: `{a, b}`, or a range of them. Lives as long as an argument.
  struct after_steps {
    std::span<const index> steps;
    after_steps() = default;
    after_steps(const std::initializer_list<index>& listed) : steps(listed.begin(), listed.size()) {}
    after_steps(std::span<index> range) : steps(range) {}
    after_steps(const std::vector<index>& range) : steps(range) {}
  };

  void clear() {
    steps_.clear();
    dependencies_.clear();
    operands_.clear();
    scratch_elements_ = 0;
  }

  index send(int peer, operand source, after_steps after = {}) {
    return add({step_kind::send, peer, source, {}}, after);
  }
  index receive(int peer, operand target, after_steps after = {}) {
    return add({step_kind::receive, peer, {}, target}, after);
  }
  index receive_reduce(int peer, operand target, after_steps after = {}) {
    return add({step_kind::receive_reduce, peer, {}, target}, after);
  }
  index copy(operand source, operand target, after_steps after = {}) {
    return add({step_kind::copy, -1, source, target}, after);
  }
  index divide(operand target, after_steps after = {}) { return add({step_kind::divide, -1, {}, target}, after); }

  /// One source and several targets is a copy into all of them.
  index reduce(std::span<const operand> sources, std::span<const operand> targets, bool divides,
               after_steps after = {}) {
    schedule_step step{step_kind::reduce, -1, {}, {}, divides};
    step.operands_begin = static_cast<std::uint32_t>(operands_.size());
    step.sources_count = static_cast<std::uint32_t>(sources.size());
    step.targets_count = static_cast<std::uint32_t>(targets.size());
    operands_.insert(operands_.end(), sources.begin(), sources.end());
    operands_.insert(operands_.end(), targets.begin(), targets.end());
    return add(step, after);
  }
  index lend_to_read(int peer, operand source) { return add({step_kind::lend, peer, source, {}}, {}); }
  index lend_to_write(int peer, operand target) { return add({step_kind::lend, peer, {}, target}, {}); }
  index lend_to_update(int peer, operand range) { return add({step_kind::lend, peer, range, range}, {}); }
  index give_back(int peer, after_steps after = {}) { return add({step_kind::give_back, peer, {}, {}}, after); }

  /// The step that the next call will add.
  index next() const { return static_cast<index>(steps_.size()); }

  std::span<const schedule_step> steps() const { return steps_; }
  std::span<schedule_step> steps() { return steps_; }
  std::span<const index> dependencies(const schedule_step& step) const {
    return std::span(dependencies_).subspan(step.dependencies_begin, step.dependencies_count);
  }

  std::span<const operand> sources(const schedule_step& reduce) const {
    return std::span(operands_).subspan(reduce.operands_begin, reduce.sources_count);
  }
  std::span<const operand> targets(const schedule_step& reduce) const {
    return std::span(operands_).subspan(reduce.operands_begin + reduce.sources_count, reduce.targets_count);
  }

  /// Calls `visit(operand, whether the step writes it)` for each, also empty ones.
  template <class Visit>
  void for_each_operand(const schedule_step& step, Visit&& visit) const {
    visit(step.source, false);
    for (const operand& source : sources(step)) {
      visit(source, false);
    }
    visit(step.target, true);
    for (const operand& target : targets(step)) {
      visit(target, true);
    }
  }

  /// How many elements of scratch its operands reach into.
  std::size_t scratch_elements() const { return scratch_elements_; }

 private:
  index add(schedule_step step, after_steps after) {
    step.dependencies_begin = static_cast<std::uint32_t>(dependencies_.size());
    step.dependencies_count = static_cast<std::uint32_t>(after.steps.size());
    dependencies_.insert(dependencies_.end(), after.steps.begin(), after.steps.end());
    for_each_operand(step, [&](const operand& range, bool) {
      if (range.buffer == operand_buffer::scratch && range.lender < 0) {
        scratch_elements_ = std::max(scratch_elements_, range.end());
      }
    });
    steps_.push_back(step);
    return static_cast<index>(steps_.size() - 1);
  }

  std::vector<schedule_step> steps_;
  std::vector<index> dependencies_;
  std::vector<operand> operands_;
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
