/// @file
/// Who is in which group when ranks split: from what each rank gave to the members of a group.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gradweave::backend {

/// What a rank gives when ranks split. All ranks see everybody's.
struct group_place {
  std::int32_t colour = 0;
  std::int32_t key = 0;
};

/// The ranks that gave the colour of `rank`, by key, then by rank. `places` is by rank.
inline std::vector<int> group_members(std::span<const group_place> places, int rank) {
  const auto place = [&](int who) { return places[static_cast<std::size_t>(who)]; };
  std::vector<int> members;
  for (int other = 0; other < static_cast<int>(places.size()); ++other) {
    if (place(other).colour == place(rank).colour) {
      members.push_back(other);
    }
  }
  std::stable_sort(members.begin(), members.end(), [&](int a, int b) { return place(a).key < place(b).key; });
  return members;
}

/// "ranks 0, 2 and 3": at most eight are named, then counted.
inline std::string ranks_in_words(std::span<const int> ranks) {
  constexpr std::size_t named_max = 8;
  const std::size_t named = std::min(ranks.size(), named_max);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == ranks.size();
    text += (i == 0 ? "" : is_last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return ranks.size() > named ? text + " and " + std::to_string(ranks.size() - named) + " more" : text;
}

}  // namespace gradweave::backend
