/// @file
/// Whom to name where a collective got no further until its deadline.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <gradweave/error.hpp>

namespace gradweave {

/// What a rank is waited for. The lower, the surer it is that it is to blame: who stopped sending may wait itself.
enum class lateness : std::uint8_t { not_entered, not_sending, not_receiving };

struct late_rank {
  std::size_t rank;
  lateness how;
};

/// A timeout that names those who are most surely to blame, in `where`, words for the collective. Nobody is late where a
/// rank takes no messages.
inline failure blame(std::span<const late_rank> late, const std::string& where) {
  failure cause{errc::timed_out, -1, -1, -1, {}, ""};
  if (late.empty()) {
    cause.detail = "some rank takes no messages in " + where;
    return cause;
  }
  const auto by_lateness = [](const late_rank& a, const late_rank& b) { return a.how < b.how; };
  const lateness worst = std::min_element(late.begin(), late.end(), by_lateness)->how;
  std::string who;
  for (const late_rank& each : late) {
    if (each.how == worst) {
      cause.rank = cause.rank == -1 ? static_cast<int>(each.rank) : cause.rank;
      who += (who.empty() ? "rank " : ", rank ") + std::to_string(each.rank);
    }
  }
  constexpr std::array<const char*, 3> words = {" did not enter ", " stopped sending in ", " stopped receiving in "};
  cause.detail = who + words[static_cast<std::size_t>(worst)] + where;
  return cause;
}

}  // namespace gradweave
