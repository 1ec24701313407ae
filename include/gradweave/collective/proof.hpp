/// @file
/// The proof of a collective: interprets the schedules of all ranks symbolically and shows that
///  - every element of every rank ends with each contribution that it should have, exactly once, and divided once;
///  - send and receive taken as one event, the whole is acyclic: no deadlock even with no buffering;
///  - no two steps of a rank that are not ordered by its own schedule touch the same memory with a write.
/// Element values are never looked at: a proof holds for all of them. Not for the step's path: it allocates freely.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
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

/// `fault` is empty where the proof holds, else it says what is wrong, and at which rank and step.
struct proof {
  std::string fault;
  std::size_t elements_sent = 0;  ///< by all ranks together
  std::size_t messages_sent = 0;  ///< by all ranks together, empty ones not counted

  bool holds() const { return fault.empty(); }
};

namespace detail {

/// Interprets all ranks' schedules together.
class symbolic_world {
 public:
  symbolic_world(std::span<const schedule> ranks, const collective_claim& claim)
      : ranks_(ranks), size_(static_cast<int>(ranks.size())), claim_(claim) {
    for (int rank = 0; rank < size_; ++rank) {
      auto& channels = channels_.emplace_back(2 * ranks.size() + 1);
      const auto steps = ranks[static_cast<std::size_t>(rank)].steps();
      for (schedule::index i = 0; i < steps.size(); ++i) {
        channels[channel_of(steps[i])].push_back(i);
      }
      heads_.emplace_back(channels.size(), 0);
      done_.emplace_back(steps.size(), false);
      memory_.emplace_back();
      heard_.emplace_back(steps.size());
      fill(rank);
    }
  }

  proof run() {
    for (bool progress = true; progress && result_.holds();) {
      progress = false;
      for (int rank = 0; rank < size_; ++rank) {
        for (std::size_t channel = 0; channel < 2 * ranks_.size() + 1; ++channel) {
          while (result_.holds() && advance(rank, channel)) {
            progress = true;
          }
        }
      }
    }
    for (int rank = 0; rank < size_ && result_.holds(); ++rank) {
      check_finished(rank);
    }
    for (int rank = 0; rank < size_ && result_.holds(); ++rank) {
      check_races(rank);
    }
    for (int rank = 0; rank < size_ && result_.holds(); ++rank) {
      check_outcome(rank);
    }
    return result_;
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const schedule_step& step_of(int rank, schedule::index i) const { return ranks_[at(rank)].steps()[i]; }
  symbolic_memory& memory_of(int rank, operand_buffer buffer) {
    return memory_[at(rank)][static_cast<std::size_t>(buffer)];
  }

  /// Sends to p: channel p. Receives from p: channel size + p. Local work: the last one.
  std::size_t channel_of(const schedule_step& step) const {
    switch (step.kind) {
      case step_kind::send: return at(step.peer);
      case step_kind::receive:
      case step_kind::receive_reduce: return at(size_) + at(step.peer);
      case step_kind::copy:
      case step_kind::divide: break;
    }
    return 2 * at(size_);
  }

  /// What a rank holds before the collective.
  void fill(int rank) {
    const auto whole = [&](operand_buffer buffer, std::size_t begin, std::size_t count) {
      const symbolic_run run{count, std::make_shared<symbolic_value>(symbolic_value{{{rank, buffer, 0}}, 0, false})};
      memory_of(rank, buffer).write(begin, {&run, 1});
    };
    switch (claim_.operation) {
      case collective::all_reduce: whole(operand_buffer::data, 0, claim_.elements); break;
      case collective::reduce_scatter: whole(operand_buffer::data, 0, claim_.pieces[at(rank)].back()); break;
      case collective::all_gather: {
        const operand own = piece_of(claim_.pieces[at(rank)], rank);
        whole(operand_buffer::data, own.begin, own.count);
        break;
      }
      case collective::all_to_all: whole(operand_buffer::source, 0, claim_.source_pieces[at(rank)].back()); break;
      case collective::broadcast:
        if (rank == claim_.root) {
          whole(operand_buffer::data, 0, claim_.elements);
        }
        break;
      case collective::barrier: whole(operand_buffer::scratch, 0, 1); break;
    }
  }

  const schedule_step* head(int rank, std::size_t channel, schedule::index& i) const {
    const auto& queue = channels_[at(rank)][channel];
    if (heads_[at(rank)][channel] == queue.size()) {
      return nullptr;
    }
    i = queue[heads_[at(rank)][channel]];
    const schedule_step& step = step_of(rank, i);
    const auto needed = ranks_[at(rank)].dependencies(step);
    return std::all_of(needed.begin(), needed.end(), [&](schedule::index d) { return done_[at(rank)][d]; }) ? &step
                                                                                                            : nullptr;
  }

  void complete(int rank, std::size_t channel, schedule::index i) {
    done_[at(rank)][i] = true;
    ++heads_[at(rank)][channel];
  }

  /// The ranks that a step knows to have begun: its own, and what the steps that it waits for know.
  std::vector<bool> heard_before(int rank, schedule::index i, std::size_t channel) const {
    std::vector<bool> heard(ranks_.size(), false);
    heard[at(rank)] = true;
    const auto merge = [&](const std::vector<bool>& other) {
      for (std::size_t r = 0; r < other.size(); ++r) {
        heard[r] = heard[r] || other[r];
      }
    };
    for (const schedule::index d : ranks_[at(rank)].dependencies(step_of(rank, i))) {
      merge(heard_[at(rank)][d]);
    }
    if (const std::size_t position = heads_[at(rank)][channel]; position != 0) {
      merge(heard_[at(rank)][channels_[at(rank)][channel][position - 1]]);
    }
    return heard;
  }

  /// Runs the next step of a channel if it can run; a send runs together with the receive that it meets.
  bool advance(int rank, std::size_t channel) {
    schedule::index i = 0;
    const schedule_step* step = head(rank, channel, i);
    if (step == nullptr || step->kind == step_kind::receive || step->kind == step_kind::receive_reduce) {
      return false;
    }
    if (step->kind == step_kind::send) {
      const std::size_t meeting = at(size_) + at(rank);
      schedule::index j = 0;
      const schedule_step* receiver = head(step->peer, meeting, j);
      if (receiver == nullptr) {
        return false;
      }
      transfer(rank, *step, step->peer, *receiver);
      auto heard = heard_before(step->peer, j, meeting);
      const auto sender_heard = heard_before(rank, i, channel);
      for (std::size_t r = 0; r < heard.size(); ++r) {
        heard[r] = heard[r] || sender_heard[r];
      }
      heard_[at(step->peer)][j] = std::move(heard);
      heard_[at(rank)][i] = sender_heard;
      complete(step->peer, meeting, j);
    } else {
      local(rank, *step);
      heard_[at(rank)][i] = heard_before(rank, i, channel);
    }
    complete(rank, channel, i);
    return true;
  }

  void transfer(int from, const schedule_step& send, int to, const schedule_step& receive) {
    if (send.source.count != receive.target.count) {
      result_.fault = "rank " + std::to_string(from) + " sends " + std::to_string(send.source.count) +
                      " elements where rank " + std::to_string(to) + " receives " +
                      std::to_string(receive.target.count);
      return;
    }
    result_.elements_sent += send.source.count;
    result_.messages_sent += send.source.count == 0 ? 0 : 1;
    auto arrived = moved(memory_of(from, send.source.buffer).read(send.source.begin, send.source.count),
                         distance(send.source, receive.target));
    symbolic_memory& target = memory_of(to, receive.target.buffer);
    if (receive.kind == step_kind::receive_reduce) {
      arrived = combined(target.read(receive.target.begin, receive.target.count), arrived);
    }
    target.write(receive.target.begin, arrived);
  }

  void local(int rank, const schedule_step& step) {
    symbolic_memory& target = memory_of(rank, step.target.buffer);
    if (step.kind == step_kind::copy) {
      if (step.source.count != step.target.count) {
        result_.fault = "rank " + std::to_string(rank) + " copies between ranges of different length";
        return;
      }
      target.write(step.target.begin,
                   moved(memory_of(rank, step.source.buffer).read(step.source.begin, step.source.count),
                         distance(step.source, step.target)));
      return;
    }
    auto runs = target.read(step.target.begin, step.target.count);
    for (symbolic_run& run : runs) {
      auto divided = std::make_shared<symbolic_value>(*run.value);
      ++divided->divisions;
      run.value = std::move(divided);
    }
    target.write(step.target.begin, runs);
  }

  static std::ptrdiff_t distance(const operand& from, const operand& to) {
    return static_cast<std::ptrdiff_t>(to.begin) - static_cast<std::ptrdiff_t>(from.begin);
  }

  void check_finished(int rank) {
    for (schedule::index i = 0; i < done_[at(rank)].size(); ++i) {
      if (!done_[at(rank)][i]) {
        result_.fault = "deadlock: rank " + std::to_string(rank) + " never gets past step " + std::to_string(i);
        return;
      }
    }
  }

  /// Two steps of one rank that touch the same memory, one of them writing, must be ordered by dependencies and
  /// channels of that rank alone: what other ranks do may not be relied upon.
  void check_races(int rank) {
    const schedule& own = ranks_[at(rank)];
    const std::size_t count = own.steps().size();
    std::vector<std::vector<bool>> before(count, std::vector<bool>(count, false));
    std::vector<schedule::index> previous(2 * ranks_.size() + 1, 0);
    std::vector<bool> used(previous.size(), false);
    for (schedule::index i = 0; i < count; ++i) {
      const schedule_step& step = own.steps()[i];
      const auto follow = [&](schedule::index d) {
        before[i][d] = true;
        for (std::size_t e = 0; e < d; ++e) {
          before[i][e] = before[i][e] || before[d][e];
        }
      };
      for (const schedule::index d : own.dependencies(step)) {
        if (d >= i) {
          result_.fault = "rank " + std::to_string(rank) + ": step " + std::to_string(i) + " depends on a later one";
          return;
        }
        follow(d);
      }
      const std::size_t channel = channel_of(step);
      if (used[channel]) {
        follow(previous[channel]);
      }
      used[channel] = true;
      previous[channel] = i;
      for (schedule::index d = 0; d < i; ++d) {
        if (!before[i][d] && conflict(step, own.steps()[d])) {
          result_.fault = "race: steps " + std::to_string(d) + " and " + std::to_string(i) + " of rank " +
                          std::to_string(rank) + " touch the same memory in no order";
          return;
        }
      }
    }
  }

  static bool conflict(const schedule_step& a, const schedule_step& b) {
    const auto overlap = [](const operand& x, const operand& y) {
      return x.buffer == y.buffer && x.begin < y.begin + y.count && y.begin < x.begin + x.count;
    };
    return overlap(a.target, b.target) || overlap(a.target, b.source) || overlap(a.source, b.target);
  }

  void expect(int rank, const operand& range, symbolic_value value) {
    std::sort(value.terms.begin(), value.terms.end());
    std::size_t position = range.begin;
    for (const symbolic_run& run : memory_of(rank, range.buffer).read(range.begin, range.count)) {
      if (*run.value != value && result_.holds()) {
        result_.fault = "rank " + std::to_string(rank) + ", element " + std::to_string(position) + ": " +
                        describe(*run.value) + " where " + describe(value) + " is claimed";
      }
      position += run.count;
    }
  }

  static std::string describe(const symbolic_value& value) {
    std::string text = value.undefined ? "undefined " : "";
    for (const auto& term : value.terms) {
      text += "+r" + std::to_string(term.rank) + "[" + std::to_string(term.shift) + "]";
    }
    return text + "/" + std::to_string(value.divisions);
  }

  symbolic_value sum_over_ranks() const {
    symbolic_value value{{}, 1, false};
    for (int rank = 0; rank < size_; ++rank) {
      value.terms.push_back({rank, operand_buffer::data, 0});
    }
    return value;
  }

  void check_outcome(int rank) {
    switch (claim_.operation) {
      case collective::all_reduce: expect(rank, {operand_buffer::data, 0, claim_.elements}, sum_over_ranks()); break;
      case collective::reduce_scatter: expect(rank, piece_of(claim_.pieces[at(rank)], rank), sum_over_ranks()); break;
      case collective::all_gather:
        for (int from = 0; from < size_; ++from) {
          expect(rank, piece_of(claim_.pieces[at(rank)], from), {{{from, operand_buffer::data, 0}}, 0, false});
        }
        break;
      case collective::all_to_all:
        for (int from = 0; from < size_; ++from) {
          const operand here = piece_of(claim_.pieces[at(rank)], from);
          const operand there = piece_of(claim_.source_pieces[at(from)], rank, operand_buffer::source);
          expect(rank, here, {{{from, operand_buffer::source, -distance(there, here)}}, 0, false});
        }
        break;
      case collective::broadcast:
        expect(rank, {operand_buffer::data, 0, claim_.elements}, {{{claim_.root, operand_buffer::data, 0}}, 0, false});
        break;
      case collective::barrier: check_barrier(rank); break;
    }
  }

  void check_barrier(int rank) {
    std::vector<bool> heard(ranks_.size(), false);
    heard[at(rank)] = true;
    for (const auto& step : heard_[at(rank)]) {
      for (std::size_t r = 0; r < step.size(); ++r) {
        heard[r] = heard[r] || step[r];
      }
    }
    for (int other = 0; other < size_; ++other) {
      if (!heard[at(other)] && result_.holds()) {
        result_.fault = "rank " + std::to_string(rank) + " may leave the barrier before rank " + std::to_string(other) +
                        " has entered it";
      }
    }
  }

  std::span<const schedule> ranks_;
  int size_;
  collective_claim claim_;
  std::vector<std::vector<std::vector<schedule::index>>> channels_;  // rank, channel: its steps in order
  std::vector<std::vector<std::size_t>> heads_;                      // rank, channel: how many are done
  std::vector<std::vector<bool>> done_;                              // rank, step
  std::vector<std::vector<std::vector<bool>>> heard_;                // rank, step: ranks known to have begun
  std::vector<std::array<symbolic_memory, 3>> memory_;               // rank, buffer
  proof result_;
};

}  // namespace detail

/// Proves that `ranks`, one schedule a rank, does what `claim` says, or says why not.
inline proof prove(std::span<const schedule> ranks, const collective_claim& claim) {
  return detail::symbolic_world(ranks, claim).run();
}

}  // namespace gradweave
