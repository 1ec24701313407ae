/// @file
/// The proof of a collective: all ranks' schedules are interpreted together in symbols. It shows that
///  - every element that the collective defines ends with each contribution exactly once;
///  - ranks cannot deadlock even without any buffering, where a send and its receive are one event;
///  - no two steps of a rank that touch the same memory, one of them writing, are unordered, and none touches what it
///    lends while it is lent.
/// The steps of a rank that need not wait for each other may then run in any order: the outcome is the same.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/collective/claim.hpp>
#include <gradweave/collective/lending.hpp>
#include <gradweave/collective/races.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/symbolic_memory.hpp>

namespace gradweave {

/// `fault` is empty where the proof holds, else it says what is wrong, and at which rank and step.
struct proof {
  std::string fault;
  std::size_t elements_sent = 0;   ///< by all ranks together
  std::size_t messages_sent = 0;   ///< by all ranks together, empty ones not counted
  std::size_t elements_lent = 0;   ///< by all ranks together
  std::size_t elements_moved = 0;  ///< by a step from or to a peer's memory, all ranks together

  bool holds() const { return fault.empty(); }
};

namespace detail {

/// Interprets all ranks' schedules together.
class symbolic_world {
 public:
  symbolic_world(std::span<const schedule> ranks, const collective_claim& claim)
      : plans_(ranks), size_(static_cast<int>(ranks.size())), claim_(claim), loans_(ranks), ranks_(ranks.size()) {
    result_.fault = loans_.fault();
    result_.elements_lent = loans_.elements();
    for (int rank = 0; rank < size_; ++rank) {
      prepare(rank);
    }
  }

  proof run() {
    while (result_.holds() && !awakened_.empty()) {
      const auto [rank, channel] = awakened_.back();
      awakened_.pop_back();
      while (result_.holds() && advance(rank, channel)) {
      }
    }
    for_each_rank([&](int rank) { check_finished(rank); });
    for_each_rank([&](int rank) {
      if (const std::string race = find_race(plans_[at(rank)], ranks_.size()); !race.empty()) {
        result_.fault = "rank " + std::to_string(rank) + ": " + race;
      }
    });
    for_each_rank([&](int rank) { check_outcome(rank); });
    return result_;
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;

  /// Steps in order, and how many of them are done.
  struct channel_state {
    std::vector<schedule::index> steps;
    std::size_t done = 0;
  };

  struct rank_state {
    std::vector<std::uint32_t> channel_numbers;  // channel: where in `channels`, or none
    std::vector<channel_state> channels;
    std::vector<bool> done;                               // step
    std::vector<std::vector<schedule::index>> followers;  // step: which steps depend on it
    std::array<symbolic_memory, 3> memory;                // buffer
    std::vector<std::vector<bool>> heard;                 // step: ranks known to have begun; of a barrier only
  };

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  const schedule_step& step_of(int rank, schedule::index i) const { return plans_[at(rank)].steps()[i]; }
  channel_state& channel_at(int rank, std::size_t channel) {
    rank_state& state = ranks_[at(rank)];
    return state.channels[state.channel_numbers[channel]];
  }
  bool is_barrier() const { return claim_.operation == collective::barrier; }

  template <class Check>
  void for_each_rank(Check&& check) {
    for (int rank = 0; rank < size_ && result_.holds(); ++rank) {
      check(rank);
    }
  }

  void prepare(int rank) {
    rank_state& state = ranks_[at(rank)];
    const auto steps = plans_[at(rank)].steps();
    state.done.assign(steps.size(), false);
    state.followers.resize(steps.size());
    state.heard.resize(is_barrier() ? steps.size() : 0);
    state.channel_numbers.assign(2 * ranks_.size() + 1, none);
    for (schedule::index i = 0; i < steps.size(); ++i) {
      const std::size_t channel = channel_of(steps[i], ranks_.size());
      if (state.channel_numbers[channel] == none) {
        state.channel_numbers[channel] = static_cast<std::uint32_t>(state.channels.size());
        state.channels.emplace_back();
        awakened_.emplace_back(rank, channel);
      }
      channel_at(rank, channel).steps.push_back(i);
      for (const schedule::index d : plans_[at(rank)].dependencies(steps[i])) {
        if (d < steps.size()) {
          state.followers[d].push_back(i);
        }
      }
    }
    for (const symbolic_content& content : content_before(claim_, rank)) {
      const symbolic_run run{content.range.count, std::make_shared<symbolic_value>(content.value)};
      state.memory[at(static_cast<int>(content.range.buffer))].write(content.range.begin, {&run, 1});
    }
  }

  // ---- memory --------------------------------------------------------------------------------------------------------

  std::vector<symbolic_run> read(int rank, const operand& range) {
    const auto [owner, place] = loans_.place_of(rank, range);
    result_.elements_moved += range.lender >= 0 ? range.count : 0;
    return ranks_[at(owner)].memory[at(static_cast<int>(place.buffer))].read(place.begin, place.count);
  }

  void write(int rank, const operand& range, std::span<const symbolic_run> runs) {
    const auto [owner, place] = loans_.place_of(rank, range);
    result_.elements_moved += range.lender >= 0 ? range.count : 0;
    ranks_[at(owner)].memory[at(static_cast<int>(place.buffer))].write(place.begin, runs);
  }

  std::ptrdiff_t distance(int from, const operand& source, int to, const operand& target) const {
    return static_cast<std::ptrdiff_t>(loans_.place_of(to, target).second.begin) -
           static_cast<std::ptrdiff_t>(loans_.place_of(from, source).second.begin);
  }

  // ---- running ------------------------------------------------------------------------------------------------------

  /// The first step of a channel that is not done, where it could run.
  const schedule_step* head(int rank, std::size_t channel, schedule::index& i) const {
    const rank_state& state = ranks_[at(rank)];
    if (state.channel_numbers[channel] == none) {
      return nullptr;
    }
    const channel_state& queue = state.channels[state.channel_numbers[channel]];
    if (queue.done == queue.steps.size()) {
      return nullptr;
    }
    i = queue.steps[queue.done];
    const auto needed = plans_[at(rank)].dependencies(step_of(rank, i));
    const auto is_done = [&](schedule::index d) { return d < state.done.size() && state.done[d]; };
    return std::all_of(needed.begin(), needed.end(), is_done) ? &step_of(rank, i) : nullptr;
  }

  void complete(int rank, std::size_t channel, schedule::index i) {
    rank_state& state = ranks_[at(rank)];
    state.done[i] = true;
    ++channel_at(rank, channel).done;
    awakened_.emplace_back(rank, channel);
    for (const schedule::index follower : state.followers[i]) {
      awakened_.emplace_back(rank, channel_of(step_of(rank, follower), ranks_.size()));
    }
  }

  /// Runs the next step of a channel if it can run. What two ranks do at once runs when it is the turn of who sends or
  /// gives back; the other side wakes it.
  bool advance(int rank, std::size_t channel) {
    schedule::index i = 0;
    const schedule_step* step = head(rank, channel, i);
    if (step == nullptr) {
      return false;
    }
    switch (step->kind) {
      case step_kind::receive:
      case step_kind::receive_reduce:
      case step_kind::lend: {
        schedule::index j = 0;
        const schedule_step* other = head(step->peer, at(rank), j);
        if (other != nullptr && meets(other->kind, step->kind)) {
          awakened_.emplace_back(step->peer, at(rank));
        }
        return false;
      }
      case step_kind::send:
      case step_kind::give_back: return meet(rank, channel, i);
      case step_kind::copy:
      case step_kind::divide:
      case step_kind::reduce: break;
    }
    local(rank, *step);
    listen(rank, i, channel);
    complete(rank, channel, i);
    return true;
  }

  static bool meets(step_kind here, step_kind there) {
    return (here == step_kind::give_back) == (there == step_kind::lend);
  }

  bool meet(int rank, std::size_t channel, schedule::index i) {
    const schedule_step& step = step_of(rank, i);
    const std::size_t meeting = at(size_) + at(rank);
    schedule::index j = 0;
    const schedule_step* other = head(step.peer, meeting, j);
    if (other == nullptr || !meets(step.kind, other->kind)) {
      return false;
    }
    if (step.kind == step_kind::send) {
      transfer(rank, step, step.peer, *other);
    }
    listen(rank, i, channel);
    listen(step.peer, j, meeting, rank, i);
    complete(step.peer, meeting, j);
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
    auto arrived = moved(read(from, send.source), distance(from, send.source, to, receive.target));
    if (receive.kind == step_kind::receive_reduce) {
      arrived = combined(read(to, receive.target), arrived);
    }
    write(to, receive.target, arrived);
  }

  void local(int rank, const schedule_step& step) {
    if (step.kind == step_kind::reduce) {
      reduce(rank, step);
    } else if (step.kind == step_kind::divide) {
      write(rank, step.target, divided(read(rank, step.target)));
    } else if (step.source.count != step.target.count) {
      result_.fault = "rank " + std::to_string(rank) + " copies between ranges of different length";
    } else {
      write(rank, step.target, moved(read(rank, step.source), distance(rank, step.source, rank, step.target)));
    }
  }

  void reduce(int rank, const schedule_step& step) {
    const auto sources = plans_[at(rank)].sources(step);
    const auto targets = plans_[at(rank)].targets(step);
    const auto differs = [&](const operand& each) { return each.count != targets.front().count; };
    if (sources.empty() || targets.empty() || std::any_of(sources.begin(), sources.end(), differs) ||
        std::any_of(targets.begin(), targets.end(), differs)) {
      result_.fault = "rank " + std::to_string(rank) + " reduces ranges of different length";
      return;
    }
    const operand& first = targets.front();
    auto sum = moved(read(rank, sources.front()), distance(rank, sources.front(), rank, first));
    for (const operand& source : sources.subspan(1)) {
      sum = combined(sum, moved(read(rank, source), distance(rank, source, rank, first)));
    }
    sum = step.divides ? divided(std::move(sum)) : std::move(sum);
    for (const operand& target : targets) {
      write(rank, target, moved(sum, distance(rank, first, rank, target)));
    }
  }

  // ---- who has heard of whom, for a barrier -------------------------------------------------------------------------

  static void merge(std::vector<bool>& into, const std::vector<bool>& other) {
    for (std::size_t r = 0; r < other.size(); ++r) {
      into[r] = into[r] || other[r];
    }
  }

  /// The ranks that a step knows to have begun: its own, what the steps that it waits for know, and what `other`, which
  /// it met, knows.
  void listen(int rank, schedule::index i, std::size_t channel, int other = -1, schedule::index met = 0) {
    if (!is_barrier()) {
      return;
    }
    rank_state& state = ranks_[at(rank)];
    std::vector<bool> heard(plans_.size(), false);
    heard[at(rank)] = true;
    for (const schedule::index d : plans_[at(rank)].dependencies(step_of(rank, i))) {
      merge(heard, state.heard[d]);
    }
    const channel_state& queue = channel_at(rank, channel);
    if (queue.done != 0) {
      merge(heard, state.heard[queue.steps[queue.done - 1]]);
    }
    if (other >= 0) {
      merge(heard, ranks_[at(other)].heard[met]);
    }
    state.heard[i] = std::move(heard);
  }

  void check_barrier(int rank) {
    std::vector<bool> heard(plans_.size(), false);
    heard[at(rank)] = true;
    for (const auto& step : ranks_[at(rank)].heard) {
      merge(heard, step);
    }
    const auto missing = std::find(heard.begin(), heard.end(), false);
    if (missing != heard.end()) {
      result_.fault = "rank " + std::to_string(rank) + " may leave the barrier before rank " +
                      std::to_string(missing - heard.begin()) + " has entered it";
    }
  }

  // ---- outcome ------------------------------------------------------------------------------------------------------

  void check_finished(int rank) {
    const auto& done = ranks_[at(rank)].done;
    if (const auto stuck = std::find(done.begin(), done.end(), false); stuck != done.end()) {
      result_.fault =
          "deadlock: rank " + std::to_string(rank) + " never gets past step " + std::to_string(stuck - done.begin());
    }
  }

  void check_outcome(int rank) {
    if (is_barrier()) {
      check_barrier(rank);
      return;
    }
    for (const symbolic_content& expected : content_after(claim_, rank, size_)) {
      std::size_t position = expected.range.begin;
      for (const symbolic_run& run : read(rank, expected.range)) {
        if (*run.value != expected.value && result_.holds()) {
          result_.fault = "rank " + std::to_string(rank) + ", element " + std::to_string(position) + ": " +
                          to_string(*run.value) + " where " + to_string(expected.value) + " is claimed";
        }
        position += run.count;
      }
    }
  }

  std::span<const schedule> plans_;
  int size_;
  collective_claim claim_;
  lending loans_;
  std::vector<rank_state> ranks_;
  std::vector<std::pair<int, std::size_t>> awakened_;  // channels of ranks that may get further
  proof result_;
};

}  // namespace detail

/// Proves that `ranks`, one schedule a rank, does what `claim` says, or says why not.
inline proof prove(std::span<const schedule> ranks, const collective_claim& claim) {
  return detail::symbolic_world(ranks, claim).run();
}

}  // namespace gradweave
