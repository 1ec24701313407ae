/// @file
/// Rows of choices in which every pair of choices occurs: few, where all combinations would be many.
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace gradweave::tests {

/// One choice of each factor.
using choice_row = std::vector<std::size_t>;

/// Every combination of `counts[f]` choices of each factor f.
inline std::vector<choice_row> combinations(std::span<const std::size_t> counts) {
  std::vector<choice_row> rows{{}};
  for (const std::size_t count : counts) {
    std::vector<choice_row> longer;
    for (const choice_row& row : rows) {
      for (std::size_t choice = 0; choice < count; ++choice) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  return rows;
}

/// The pairs of (factor, choice) that a row has.
inline std::set<std::pair<choice_row, choice_row>> pairs_of(const choice_row& row) {
  std::set<std::pair<choice_row, choice_row>> pairs;
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (std::size_t b = a + 1; b < row.size(); ++b) {
      pairs.insert({{a, row[a]}, {b, row[b]}});
    }
  }
  return pairs;
}

/// Of all combinations one after another the one that has most pairs which no row before it has.
inline std::vector<choice_row> pairwise(std::span<const std::size_t> counts) {
  std::vector<std::pair<choice_row, std::set<std::pair<choice_row, choice_row>>>> candidates;
  for (const choice_row& row : combinations(counts)) {
    candidates.emplace_back(row, pairs_of(row));
  }
  std::vector<choice_row> rows;
  for (;;) {
    const auto* best = &candidates.front();
    for (const auto& each : candidates) {
      best = each.second.size() > best->second.size() ? &each : best;
    }
    const auto covered = best->second;
    if (covered.empty()) {
      return rows;
    }
    rows.push_back(best->first);
    for (auto& [row, missing] : candidates) {
      for (const auto& pair : covered) {
        missing.erase(pair);
      }
    }
  }
}

}  // namespace gradweave::tests
