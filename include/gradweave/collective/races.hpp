/// @file
/// Whether the steps of a schedule that touch the same memory are ordered: the part of the proof that looks at one rank.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/collective/schedule.hpp>

namespace gradweave::detail {

/// Which steps of a schedule must be complete before which others: a vector clock over channels for each step (Fidge,
/// Timestamps in message-passing systems, 1988). Steps that wait for the same ones share the long part of theirs.
class step_order {
 public:
  step_order(const schedule& plan, std::size_t size) : clocks_(plan.steps().size()), places_(plan.steps().size()) {
    std::map<std::size_t, schedule::index> last;  // channel: its last step
    for (schedule::index i = 0; i < clocks_.size(); ++i) {
      const schedule_step& step = plan.steps()[i];
      const auto channel = static_cast<std::uint32_t>(channel_of(step, size));
      places_[i] = {channel, 1};
      for (const schedule::index d : plan.dependencies(step)) {
        if (d >= i) {
          fault_ = "step " + std::to_string(i) + " depends on a later one";
          return;
        }
        follow(clocks_[i], d);
      }
      if (const auto [before, first] = last.try_emplace(channel, i); !first) {
        places_[i].second = places_[before->second].second + 1;
        follow(clocks_[i], before->second);
        before->second = i;
      }
    }
  }

  /// Empty, or that the dependencies make no sense.
  const std::string& fault() const { return fault_; }

  bool is_before(schedule::index d, schedule::index i) const {
    const auto [channel, position] = places_[d];
    return clocks_[i].at(channel) >= position;
  }

 private:
  using clock_entry = std::pair<std::uint32_t, std::uint32_t>;  // of a channel, how many of its steps
  using entries = std::vector<clock_entry>;

  struct step_clock {
    std::shared_ptr<const entries> base;  // by channel
    entries recent;                       // few, in any order

    std::uint32_t at(std::uint32_t channel) const {
      std::uint32_t steps = 0;
      for (const clock_entry& each : recent) {
        steps = each.first == channel ? std::max(steps, each.second) : steps;
      }
      if (base) {
        const auto entry = std::lower_bound(base->begin(), base->end(), clock_entry{channel, 0});
        steps = entry != base->end() && entry->first == channel ? std::max(steps, entry->second) : steps;
      }
      return steps;
    }

    void add(clock_entry entry) {
      constexpr std::size_t recent_max = 16;
      for (clock_entry& each : recent) {
        if (each.first == entry.first) {
          each.second = std::max(each.second, entry.second);
          return;
        }
      }
      recent.push_back(entry);
      if (recent.size() > recent_max) {
        std::sort(recent.begin(), recent.end());
        absorb(std::exchange(recent, {}));
      }
    }

    void absorb(const entries& sorted) {
      entries both;
      both.reserve(sorted.size() + (base ? base->size() : 0));
      const entries none;
      const entries& old = base ? *base : none;
      std::merge(old.begin(), old.end(), sorted.begin(), sorted.end(), std::back_inserter(both));
      // Of two entries of a channel the second is the greater one.
      const auto repeated = [](const clock_entry& a, const clock_entry& b) { return a.first == b.first; };
      both.erase(both.begin(), std::unique(both.rbegin(), both.rend(), repeated).base());
      base = std::make_shared<const entries>(std::move(both));
    }
  };

  /// After step d, and all that d is after.
  void follow(step_clock& clock, schedule::index d) {
    const step_clock& other = clocks_[d];
    if (!clock.base) {
      clock.base = other.base;
    } else if (other.base && other.base != clock.base) {
      clock.absorb(*other.base);
    }
    for (const clock_entry& each : other.recent) {
      clock.add(each);
    }
    clock.add(places_[d]);
  }

  std::vector<step_clock> clocks_;
  std::vector<clock_entry> places_;
  std::string fault_;
};

/// Finds two steps of one rank that touch the same memory in no order, one of them writing.
class race_finder {
 public:
  race_finder(const schedule& plan, std::size_t size) : plan_(plan), order_(plan, size), returned_(size) {}

  /// Empty, or which steps.
  std::string find() {
    if (!order_.fault().empty()) {
      return order_.fault();
    }
    for (schedule::index i = 0; i < plan_.steps().size() && fault_.empty(); ++i) {
      visit(i, plan_.steps()[i]);
    }
    return fault_;
  }

 private:
  static constexpr schedule::index none = std::numeric_limits<schedule::index>::max();
  static constexpr std::size_t everything = std::numeric_limits<std::size_t>::max() / 2;

  /// Who touched a run of elements: the last that wrote, and those that have read since.
  struct touched_run {
    std::size_t count;
    schedule::index writer;
    std::vector<schedule::index> readers;
  };
  using touched_memory = std::map<std::size_t, touched_run>;

  void visit(schedule::index i, const schedule_step& step) {
    switch (step.kind) {
      case step_kind::lend:
        // The loan begins before any step does.
        if (!plan_.dependencies(step).empty()) {
          fault_ = "step " + std::to_string(i) + " lends, and so can wait for nothing";
        }
        break;
      case step_kind::give_back:
        touch(i, {operand_buffer::data, 0, everything, step.peer}, true);
        returned_[static_cast<std::size_t>(step.peer)] = true;
        return;
      case step_kind::reduce:
      case step_kind::send:
      case step_kind::receive:
      case step_kind::receive_reduce:
      case step_kind::copy:
      case step_kind::divide: break;
    }
    plan_.for_each_operand(step, [&](const operand& range, bool writes) { touch(i, range, writes); });
  }

  void touch(schedule::index i, const operand& range, bool writes) {
    if (range.count == 0 || !fault_.empty()) {
      return;
    }
    if (range.lender >= 0 && returned_[static_cast<std::size_t>(range.lender)]) {
      fault_ = "step " + std::to_string(i) + " uses what was given back to rank " + std::to_string(range.lender);
      return;
    }
    touched_memory& memory = range.lender >= 0 ? borrowed_[range.lender] : own_[static_cast<std::size_t>(range.buffer)];
    split(memory, range.begin);
    split(memory, range.end());
    fill_gaps(memory, range);
    for (auto run = memory.lower_bound(range.begin); run != memory.end() && run->first < range.end(); ++run) {
      auto& [count, writer, readers] = run->second;
      check(writer, i);
      if (writes) {
        for (const schedule::index reader : readers) {
          check(reader, i);
        }
        writer = i;
        readers.clear();
      } else {
        std::erase_if(readers, [&](schedule::index reader) { return order_.is_before(reader, i); });
        readers.push_back(i);
      }
    }
  }

  void check(schedule::index earlier, schedule::index i) {
    const bool begins_at_once = plan_.steps()[i].kind == step_kind::lend;
    // A step of a reduce may name the same memory as its source and its target.
    if (earlier != none && earlier != i && fault_.empty() && (begins_at_once || !order_.is_before(earlier, i))) {
      fault_ =
          "race: steps " + std::to_string(earlier) + " and " + std::to_string(i) + " touch the same memory in no order";
    }
  }

  static void split(touched_memory& memory, std::size_t at) {
    auto after = memory.upper_bound(at);
    if (after == memory.begin()) {
      return;
    }
    auto& [begin, run] = *std::prev(after);
    if (begin < at && at < begin + run.count) {
      touched_run rest = run;
      rest.count = begin + run.count - at;
      run.count = at - begin;
      memory.emplace(at, std::move(rest));
    }
  }

  static void fill_gaps(touched_memory& memory, const operand& range) {
    for (std::size_t at = range.begin; at < range.end();) {
      const auto next = memory.lower_bound(at);
      const std::size_t until = next == memory.end() ? range.end() : std::min(next->first, range.end());
      if (at < until) {
        memory.emplace_hint(next, at, touched_run{until - at, none, {}});
        at = until;
      } else {
        at += next->second.count;
      }
    }
  }

  const schedule& plan_;
  step_order order_;
  std::array<touched_memory, 3> own_;       // by buffer
  std::map<int, touched_memory> borrowed_;  // by lender
  std::vector<bool> returned_;              // by lender
  std::string fault_;
};

/// Empty where every two steps of a rank that touch the same memory, one of them writing, are ordered by dependencies and
/// channels of that rank alone: what other ranks do may not be relied upon.
inline std::string find_race(const schedule& plan, std::size_t size) { return race_finder(plan, size).find(); }

}  // namespace gradweave::detail
