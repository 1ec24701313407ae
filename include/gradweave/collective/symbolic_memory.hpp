/// @file
/// Symbolic memory for the proof of a collective: which contributions each element holds, kept as runs of neighbours.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/collective/schedule.hpp>

namespace gradweave::detail {

/// What an element holds: which ranks' elements, `shift` positions further on in their `buffer`, were added, and how
/// often the sum was divided.
struct symbolic_value {
  /// One contribution of each rank in [first, last).
  struct term {
    operand_buffer buffer;
    std::ptrdiff_t shift;
    int first;
    int last;
    friend auto operator<=>(const term&, const term&) = default;
  };
  /// Sorted. Neighbouring ranks are one term; a contribution that was added twice is in two.
  std::vector<term> terms;
  int divisions = 0;
  bool undefined = false;

  friend bool operator==(const symbolic_value&, const symbolic_value&) = default;

  /// The elements of one rank that stand where they stood.
  static symbolic_value of(int rank, operand_buffer buffer, std::ptrdiff_t shift = 0) {
    return {{{buffer, shift, rank, rank + 1}}, 0, false};
  }
};

/// "+r0..3[0]/1": the elements of ranks 0 to 3 at the same place, divided once.
inline std::string to_string(const symbolic_value& value) {
  std::string text = value.undefined ? "undefined " : "";
  for (const auto& term : value.terms) {
    text += "+r" + std::to_string(term.first);
    text += term.last - term.first > 1 ? ".." + std::to_string(term.last - 1) : "";
    text += "[" + std::to_string(term.shift) + "]";
  }
  return text + "/" + std::to_string(value.divisions);
}

/// A run of neighbouring elements that hold the same value.
struct symbolic_run {
  std::size_t count;
  std::shared_ptr<const symbolic_value> value;
};

/// One buffer of one rank: runs by their first element; what no run covers is undefined.
class symbolic_memory {
 public:
  void write(std::size_t begin, std::span<const symbolic_run> runs) {
    std::size_t count = 0;
    for (const symbolic_run& run : runs) {
      count += run.count;
    }
    split(begin);
    split(begin + count);
    runs_.erase(runs_.lower_bound(begin), runs_.lower_bound(begin + count));
    for (const symbolic_run& run : runs) {
      if (run.count != 0) {
        runs_.emplace(begin, run);
      }
      begin += run.count;
    }
  }

  std::vector<symbolic_run> read(std::size_t begin, std::size_t count) {
    split(begin);
    split(begin + count);
    std::vector<symbolic_run> found;
    std::size_t position = begin;
    const auto gap_until = [&](std::size_t end) {
      if (position < end) {
        found.push_back({end - position, std::make_shared<symbolic_value>(symbolic_value{{}, 0, true})});
      }
    };
    for (auto run = runs_.lower_bound(begin); run != runs_.end() && run->first < begin + count; ++run) {
      gap_until(run->first);
      found.push_back(run->second);
      position = run->first + run->second.count;
    }
    gap_until(begin + count);
    return found;
  }

 private:
  void split(std::size_t at) {
    auto after = runs_.upper_bound(at);
    if (after == runs_.begin()) {
      return;
    }
    auto& [begin, run] = *std::prev(after);
    if (begin < at && at < begin + run.count) {
      runs_.emplace(at, symbolic_run{begin + run.count - at, run.value});
      run.count = at - begin;
    }
  }

  std::map<std::size_t, symbolic_run> runs_;
};

/// Values that moved `distance` elements towards the end of the buffer: what they refer to lies that much further back.
inline std::vector<symbolic_run> moved(std::vector<symbolic_run> runs, std::ptrdiff_t distance) {
  if (distance == 0) {
    return runs;
  }
  for (symbolic_run& run : runs) {
    auto value = std::make_shared<symbolic_value>(*run.value);
    for (auto& term : value->terms) {
      term.shift -= distance;
    }
    run.value = std::move(value);
  }
  return runs;
}

inline symbolic_value combined(const symbolic_value& a, const symbolic_value& b) {
  symbolic_value sum{{}, a.divisions + b.divisions, a.undefined || b.undefined};
  sum.terms.reserve(a.terms.size() + b.terms.size());
  std::merge(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(), std::back_inserter(sum.terms));
  auto joined = sum.terms.begin();
  for (auto term = joined; term != sum.terms.end(); ++term) {
    if (term != joined && joined->last == term->first && joined->buffer == term->buffer &&
        joined->shift == term->shift) {
      joined->last = term->last;
    } else if (term != joined) {
      *++joined = *term;
    }
  }
  sum.terms.erase(sum.terms.empty() ? joined : joined + 1, sum.terms.end());
  return sum;
}

/// The same for runs of the same total length.
inline std::vector<symbolic_run> combined(std::span<const symbolic_run> a, std::span<const symbolic_run> b) {
  std::vector<symbolic_run> sums;
  std::size_t i = 0, j = 0, used_a = 0, used_b = 0;
  while (i < a.size() && j < b.size()) {
    const std::size_t count = std::min(a[i].count - used_a, b[j].count - used_b);
    sums.push_back({count, std::make_shared<symbolic_value>(combined(*a[i].value, *b[j].value))});
    if ((used_a += count) == a[i].count) {
      ++i;
      used_a = 0;
    }
    if ((used_b += count) == b[j].count) {
      ++j;
      used_b = 0;
    }
  }
  return sums;
}

inline std::vector<symbolic_run> divided(std::vector<symbolic_run> runs) {
  for (symbolic_run& run : runs) {
    auto value = std::make_shared<symbolic_value>(*run.value);
    ++value->divisions;
    run.value = std::move(value);
  }
  return runs;
}

}  // namespace gradweave::detail
