/// @file
/// The conformance kit of backends that make groups. docs/reference/backend.md has what it checks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/collective_checks.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gradweave::testing {

namespace detail {

/// Collects a number of each rank, in rank order.
class number_gather {
 public:
  number_gather(int rank, int size, std::int32_t own) : numbers_(static_cast<std::size_t>(size), -1) {
    numbers_[static_cast<std::size_t>(rank)] = own;
    for (std::size_t r = 0; r <= numbers_.size(); ++r) {
      pieces_.push_back(r);
    }
    whole_ = {reinterpret_cast<std::byte*>(numbers_.data()), numbers_.size() * sizeof(std::int32_t), 0};
  }
  number_gather(const number_gather&) = delete;
  number_gather& operator=(const number_gather&) = delete;

  collective_request request() const {
    return {.operation = collective::all_gather, .kind = element_kind::int32, .data = {&whole_, 1}, .pieces = pieces_};
  }
  const std::vector<std::int32_t>& numbers() const { return numbers_; }

 private:
  std::vector<std::int32_t> numbers_;
  std::vector<std::size_t> pieces_;
  extent whole_;
};

/// A way to split: what each rank gives.
struct split_pattern {
  const char* name;
  std::function<std::pair<int, int>(int rank, int size)> colour_and_key;

  /// Who is with `rank`, in order: found by comparing, not by sorting.
  std::vector<std::int32_t> members(int rank, int size) const {
    std::vector<std::int32_t> found;
    const auto comes_before = [&](int a, int b) {
      const int key_a = colour_and_key(a, size).second;
      const int key_b = colour_and_key(b, size).second;
      return key_a < key_b || (key_a == key_b && a < b);
    };
    for (int other = 0; other < size; ++other) {
      if (colour_and_key(other, size).first == colour_and_key(rank, size).first) {
        const auto place =
            std::find_if(found.begin(), found.end(), [&](int each) { return comes_before(other, each); });
        found.insert(place, other);
      }
    }
    return found;
  }
};

inline const std::vector<split_pattern>& split_patterns() {
  static const std::vector<split_pattern> patterns = {
      {"all in one, in reversed order", [](int rank, int) { return std::pair(0, -rank); }},
      {"all with one key", [](int, int) { return std::pair(7, 5); }},
      {"each alone", [](int rank, int) { return std::pair(rank, 0); }},
      {"the last alone", [](int rank, int size) { return std::pair(rank + 1 == size ? 1 : 0, -rank); }},
      {"even and odd", [](int rank, int) { return std::pair(rank % 2, rank / 2 == 0 ? 1 : 0); }},
      {"the first in none", [](int rank, int) { return std::pair(rank == 0 ? no_group : 3, rank % 2); }},
      {"nobody in any", [](int rank, int) { return std::pair(no_group, rank); }},
  };
  return patterns;
}

template <can_split Backend>
void check_pattern(Backend& parent, const split_pattern& pattern, conformance_recorder& recorder) {
  const std::string what = std::to_string(parent.size()) + " ranks, " + pattern.name + ": ";
  const auto [colour, key] = pattern.colour_and_key(parent.rank(), parent.size());
  auto group = parent.split(colour, key);
  if (!recorder.check(group.has_value() == (colour != no_group), what + "no_group, and no colour, means no group") ||
      !group) {
    return;
  }
  const std::vector<std::int32_t> members = pattern.members(parent.rank(), parent.size());
  recorder.check(group->size() == static_cast<int>(members.size()), what + "the group's size is wrong");
  const bool is_placed = group->rank() >= 0 && group->rank() < static_cast<int>(members.size()) &&
                         members[static_cast<std::size_t>(group->rank())] == parent.rank();
  recorder.check(is_placed, what + "the rank in the group is wrong");
  number_gather gathered(group->rank(), group->size(), parent.rank());
  run_collective(*group, gathered.request());
  recorder.check(gathered.numbers() == members, what + "other ranks are in the group, or in another order");
}

/// Collectives of the rows and the columns of a grid, and of all ranks, at once, begun in an order that differs by rank.
template <can_split Backend>
void check_at_once(Backend& parent, conformance_recorder& recorder) {
  const int size = parent.size();
  const std::vector<split_pattern> grid = {
      {"rows", [](int rank, int) { return std::pair(rank / 2, rank); }},
      {"columns", [](int rank, int) { return std::pair(rank % 2, -rank); }},
      {"all", [](int rank, int) { return std::pair(0, rank); }},
  };
  std::vector<Backend> groups;
  for (const split_pattern& pattern : grid) {
    const auto [colour, key] = pattern.colour_and_key(parent.rank(), size);
    groups.push_back(std::move(*parent.split(colour, key)));
  }
  for (int round = 0; round < 8; ++round) {
    std::vector<std::optional<number_gather>> gathers(groups.size());
    std::vector<bool> complete(groups.size(), false);
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::size_t which = (i + static_cast<std::size_t>(parent.rank() + round)) % groups.size();
      gathers[which].emplace(groups[which].rank(), groups[which].size(), parent.rank());
      groups[which].start(gathers[which]->request());
    }
    while (std::find(complete.begin(), complete.end(), false) != complete.end()) {
      for (std::size_t i = 0; i < groups.size(); ++i) {
        complete[i] = complete[i] || groups[i].poll();
      }
      std::this_thread::yield();
    }
    for (std::size_t i = 0; i < groups.size(); ++i) {
      recorder.check(gathers[i]->numbers() == grid[i].members(parent.rank(), size), [&] {
        return std::to_string(size) + " ranks: of collectives in several groups at once that of " + grid[i].name +
               " is wrong";
      });
    }
  }
  // A group may end before others of the same ranks, and one that came of it.
  auto within = groups[0].split(0, -groups[0].rank());
  const int place = groups[0].size() - 1 - groups[0].rank();
  groups.erase(groups.begin());
  recorder.check(within && within->rank() == place, std::to_string(size) + " ranks: a group of a group is wrong");
  run_collective(*within, any_collective().make(within->size()));
  run_collective(groups[0], any_collective().make(groups[0].size()));
}

/// A rank fails, or leaves, in its row of a grid: who shares a column with it is told there, and all are told in a
/// collective of all.
template <class Run>
void check_failure_in_group(Run&& run, int size, bool leaves, conformance_recorder& recorder) {
  const int culprit = size - 1;
  const std::string what = std::to_string(size) + " ranks, the last one " + (leaves ? "leaves" : "aborts in a group");
  const std::string reason = "the reason of rank " + std::to_string(culprit);
  const auto outcomes = run_ranks(run, size, recorder, what, [&](auto& backend) {
    auto row = backend.split(backend.rank() / 2, 0);
    auto column = backend.split(backend.rank() % 2, 0);
    if (backend.rank() == culprit) {
      if (leaves) {
        return collective_outcome{true, {errc::peer_lost, culprit, -1, -1, {}, reason}};
      }
      row->abort({errc::aborted, row->rank(), 3, -1, {"slot"}, reason});
    } else if (backend.rank() % 2 == culprit % 2) {
      const collective_outcome told = attempt(*column, any_collective().make(column->size()));
      recorder.check(told.threw && told.cause.rank == column->size() - 1, what + ": another group must name it");
    }
    return attempt(backend, any_collective().make(size));
  });
  for (const collective_outcome& told : outcomes) {
    const bool same = told.cause.code == (leaves ? errc::peer_lost : errc::aborted) && told.cause.rank == culprit &&
                      (leaves || told.cause.detail.find(reason) != std::string::npos);
    recorder.check(told.threw, [&] { return what + ": a rank got a result in a collective of all"; });
    recorder.check(!told.threw || same, [&] { return what + ": a rank was told " + to_string(told.cause); });
  }
}

/// A rank does not split, or asks for what there is not: nobody may get a group.
template <class Run>
void check_refusal(Run&& run, int size, bool leaves, conformance_recorder& recorder) {
  const std::string what = std::to_string(size) + " ranks, the last one " + (leaves ? "leaves" : "gives colour -7");
  run_ranks(run, size, recorder, what, [&](auto& backend) {
    const bool differs = backend.rank() == size - 1;
    if (!(differs && leaves)) {
      bool threw = false;
      try {
        (void)backend.split(differs ? -7 : 0, 0);
      } catch (const std::exception&) {
        threw = true;
      }
      recorder.check(threw, [&] { return what + ": split must throw on every rank"; });
    }
    return collective_outcome{};
  });
}

}  // namespace detail

/// Checks `split` of a host backend, which offers all_gather. `run` is as check_backend takes it. Checks groups of uneven size,
/// of one rank and of all, orders by key, no_group, groups of groups; collectives in several groups at once, begun in
/// different orders; that a failure in a group, and a rank that leaves, are told in all groups which the rank is in; and that
/// nobody gets a group where a rank does not split, or gives a wrong colour.
template <class Run>
conformance_report check_split(Run&& run, const std::vector<int>& sizes = {1, 2, 3, 4}) {
  conformance_recorder recorder;
  for (const int size : sizes) {
    detail::run_ranks(run, size, recorder, std::to_string(size) + " ranks: groups", [&](auto& backend) {
      for (const detail::split_pattern& pattern : detail::split_patterns()) {
        detail::check_pattern(backend, pattern, recorder);
      }
      detail::check_at_once(backend, recorder);
      run_collective(backend, detail::any_collective().make(size));
      return detail::collective_outcome{};
    });
    detail::check_refusal(run, size, false, recorder);
    if (size > 1) {
      detail::check_refusal(run, size, true, recorder);
      detail::check_failure_in_group(run, size, true, recorder);
      detail::check_failure_in_group(run, size, false, recorder);
    }
  }
  return recorder.report();
}

}  // namespace gradweave::testing
