/// @file
/// What has to come of a program: all ranks in one place, in double precision. It shares no code with the library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "tests/support/program.hpp"

namespace gradweave::tests {

/// What the reference gets wrong, to see whether that is noticed.
enum class mistake { none, forgets_accumulation, counts_joined, loses_unused, averages_buffers, blames_another };

struct expected_value {
  double value = 0;
  double magnitude = 0;  ///< the same sum, of absolute values: what roundings are in proportion to
};

/// Of one rank in one direction.
struct expected_state {
  std::vector<std::vector<expected_value>> slots;
  std::vector<double> buffers;
  std::uint32_t used = 0;  ///< a bit for each slot that any rank has used in the last step
};

enum class expected_fault { throws, unused, accumulations };

struct expectation {
  std::vector<each_rank<expected_state>> after;  ///< by step, of its direction
  each_rank<std::size_t> steps{};                ///< that a rank ends well, unless another group fails earlier
  each_rank<bool> fails{};                       ///< in the step after those
  std::vector<std::map<std::size_t, expected_fault>>
      culprits;  ///< by step: ranks of the job, any of which may be named
};

/// How much a rank's gradient counts among those of its group.
inline double reference_weight(const program& what, const std::vector<std::size_t>& group, std::size_t rank,
                               std::size_t step, mistake made) {
  double live = 0, samples = 0;
  for (const std::size_t member : group) {
    live += what.has_data(member, step) ? 1 : 0;
    samples += what.has_data(member, step) ? static_cast<double>(what.steps[step].samples[member]) : 0;
  }
  switch (what.average) {
    case program_average::sum: return 1;
    case program_average::weighted:
      return samples == 0 ? 0 : static_cast<double>(what.steps[step].samples[rank]) / samples;
    default:
      return 1 / (what.joined_left_out && made != mistake::counts_joined ? live : static_cast<double>(group.size()));
  }
}

/// What stops a rank in a step, if anything does.
inline bool reference_fault(const program& what, const std::vector<std::size_t>& group, std::size_t rank,
                            std::size_t number, expected_fault& fault) {
  const program_step& step = what.steps[number];
  for (std::size_t pass = what.first_pass(rank, number); pass < step.passes.size(); ++pass) {
    if (what.breaks_off(rank, number, pass)) {
      fault = expected_fault::throws;
      return true;
    }
    if (!what.zero_fill && step.passes[pass].used[rank] != (1U << what.slots.size()) - 1) {
      fault = expected_fault::unused;
      return true;
    }
  }
  const auto differs = [&](std::size_t other) {
    return what.has_data(other, number) && what.first_pass(other, number) != what.first_pass(rank, number);
  };
  fault = expected_fault::accumulations;
  if (std::any_of(group.begin(), group.end(), differs)) {
    return true;
  }
  fault = expected_fault::throws;
  return what.breaks_reducing(rank, number);
}

/// A step that ends well: `state` is by rank.
inline void reference_step(const program& what, const std::vector<std::size_t>& group, std::size_t number,
                           each_rank<expected_state>& state, mistake made) {
  const program_step& step = what.steps[number];
  std::vector<std::size_t> live;
  std::uint32_t used = 0;
  for (const std::size_t rank : group) {
    if (what.has_data(rank, number)) {
      live.push_back(rank);
      used |= what.used_by(rank, number);
    }
  }
  for (std::size_t slot = 0; slot < what.slots.size(); ++slot) {
    for (std::size_t i = 0; (used >> slot & 1) != 0 && i < what.slots[slot].elements; ++i) {
      expected_value average;
      for (const std::size_t rank : live) {
        double sum = 0;
        for (std::size_t pass = what.first_pass(rank, number); pass < step.passes.size(); ++pass) {
          if ((step.passes[pass].used[rank] >> slot & 1) != 0) {
            sum = made == mistake::forgets_accumulation ? 0 : sum;
            sum += what.times(rank, number, slot) * what.gradient(rank, number, pass, slot, i);
          }
        }
        // One rank alone averages nothing.
        const double weight = group.size() == 1 ? 1 : reference_weight(what, group, rank, number, made);
        average.value += weight * sum;
        average.magnitude += weight * std::abs(sum);
      }
      for (const std::size_t rank : group) {
        state[rank].slots[slot][i] = average;
      }
    }
    for (std::size_t i = 0; made == mistake::loses_unused && i < what.slots[slot].elements; ++i) {
      for (const std::size_t rank : group) {
        state[rank].slots[slot][i].value *= (used >> slot & 1) != 0 ? 1 : 0;
      }
    }
  }
  for (std::size_t b = 0; b < what.buffers.size(); ++b) {
    double mean = 0;
    for (const std::size_t rank : live) {
      mean += what.buffer(rank, number, b) / static_cast<double>(live.size());
    }
    const std::size_t from = group[what.buffers[b].from % group.size()];
    const double source = what.buffer(what.has_data(from, number) ? from : live.front(), number, b);
    for (const std::size_t rank : group) {
      state[rank].buffers[b] = what.buffers[b].averaged != (made == mistake::averages_buffers) ? mean : source;
    }
  }
  for (const std::size_t rank : group) {
    state[rank].used = used;
  }
}

inline expectation run_reference(const program& what, mistake made = mistake::none) {
  expectation expected;
  expected.culprits.resize(what.steps.size());
  each_rank<expected_state> begin;
  for (std::size_t rank = 0; rank < what.ranks; ++rank) {
    for (const program_slot& slot : what.slots) {
      begin[rank].slots.emplace_back(slot.elements,
                                     expected_value{program::begin(rank), std::abs(program::begin(rank))});
    }
    begin[rank].buffers.resize(what.buffers.size());
  }
  std::vector<each_rank<expected_state>> states(what.directions.size(), begin);
  each_rank<bool> over{};
  for (std::size_t number = 0; number < what.steps.size(); ++number) {
    const std::size_t direction = what.steps[number].direction;
    for (std::size_t rank = 0; rank < what.ranks; ++rank) {
      const std::vector<std::size_t> group = what.group_of(rank, direction);
      if (group.front() != rank) {
        continue;  // seen already
      }
      const auto is_live = [&](std::size_t member) { return what.has_data(member, number); };
      if (std::none_of(group.begin(), group.end(), is_live)) {
        std::for_each(group.begin(), group.end(), [&](std::size_t member) { over[member] = true; });
        continue;
      }
      bool fails = false;  // also where a member has failed in another direction
      for (const std::size_t member : group) {
        expected_fault fault{};
        fails = fails || over[member];
        if (is_live(member) && !over[member] && reference_fault(what, group, member, number, fault)) {
          fails = true;
          expected.culprits[number].emplace(made == mistake::blames_another ? (member + 1) % what.ranks : member,
                                            fault);
        }
      }
      for (const std::size_t member : group) {
        expected.fails[member] = expected.fails[member] || (fails && !over[member]);
        over[member] = over[member] || fails;
        expected.steps[member] += over[member] ? 0 : 1;
      }
      if (!fails) {
        reference_step(what, group, number, states[direction], made);
      }
    }
    expected.after.push_back(states[direction]);
  }
  return expected;
}

}  // namespace gradweave::tests
