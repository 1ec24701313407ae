/// @file
/// A rank's last collectives as a text file, and what the files of all ranks say together: who was where.
#pragma once

#include <algorithm>
#include <cstdint>
#include <istream>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/diagnostics/event.hpp>
#include <gradweave/element.hpp>

namespace gradweave {

struct rank_dump {
  int rank = 0;
  int size = 1;
  std::string reason;         ///< why it was written, one line
  std::int64_t at_ns = 0;     ///< when, on the clock of the events
  std::vector<event> events;  ///< collectives in their order, the oldest first

  friend bool operator==(const rank_dump&, const rank_dump&) = default;
};

/// Lines of words: `gradweave-dump 1`, `rank R of N`, `at NS`, `reason ...`, a line for each event, and `end`.
inline void write_dump(std::ostream& out, const rank_dump& dump) {
  std::string reason = dump.reason;
  std::replace(reason.begin(), reason.end(), '\n', ' ');
  out << "gradweave-dump 1\nrank " << dump.rank << " of " << dump.size << "\nat " << dump.at_ns << "\nreason " << reason
      << '\n';
  for (const event& each : dump.events) {
    out << "collective " << each.collective << " step " << each.step << " bucket " << each.bucket << ' '
        << static_cast<int>(each.operation) << ' ' << to_string(each.operation) << " elements " << each.elements << ' '
        << static_cast<int>(each.element) << ' ' << element_name(each.element) << " entered " << each.begin_ns
        << " left " << each.end_ns << '\n';
  }
  out << "end\n";
}

/// Throws std::runtime_error where it is no such file, or not whole.
inline rank_dump read_dump(std::istream& in) {
  const auto word = [&](const char* expected) {
    std::string got;
    in >> got;
    if (!in || got != expected) {
      throw std::runtime_error("this is no whole dump: '" + std::string(expected) + "' should stand where '" + got +
                               "' stands");
    }
  };
  rank_dump dump;
  word("gradweave-dump");
  word("1");
  word("rank");
  in >> dump.rank;
  word("of");
  in >> dump.size;
  word("at");
  in >> dump.at_ns;
  word("reason");
  in.get();
  std::getline(in, dump.reason);
  std::string first;
  while (in >> first && first == "collective") {
    event each;
    int operation = 0, element = 0;
    std::string name;
    in >> each.collective;
    word("step");
    in >> each.step;
    word("bucket");
    in >> each.bucket >> operation >> name;
    word("elements");
    in >> each.elements >> element >> name;
    word("entered");
    in >> each.begin_ns;
    word("left");
    in >> each.end_ns;
    each.operation = static_cast<collective>(std::clamp(operation, 0, 255));
    each.element = static_cast<element_kind>(std::clamp(element, 0, 255));
    dump.events.push_back(each);
  }
  if (first != "end" || dump.rank < 0 || dump.rank >= dump.size) {
    throw std::runtime_error("this is no whole dump: it does not end with 'end', or its rank is none");
  }
  return dump;
}

namespace detail {

/// "rank 3", "ranks 0, 1, 3".
inline std::string name_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) {
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  return (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

inline std::string seconds_in_words(std::int64_t ns) {
  const std::int64_t tenths = ns / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

/// The collective that a rank was in, or else had left last.
inline const event* last_of(const rank_dump& dump) { return dump.events.empty() ? nullptr : &dump.events.back(); }

inline std::string whereabouts(const rank_dump& dump) {
  const event* last = last_of(dump);
  if (last == nullptr) {
    return "has entered no collective";
  }
  return last->end_ns == 0 ? "is in " + to_string(*last)
                           : "last left " + to_string(*last) + ", " + seconds_in_words(dump.at_ns - last->end_ns) +
                                 " before its dump";
}

/// The ranks that wrote none of these.
inline std::vector<int> ranks_without(std::span<const rank_dump> dumps) {
  std::vector<int> absent;
  for (int rank = 0; rank < (dumps.empty() ? 0 : dumps[0].size); ++rank) {
    if (std::ranges::none_of(dumps, [&](const rank_dump& each) { return each.rank == rank; })) {
      absent.push_back(rank);
    }
  }
  return absent;
}

/// Those who wait in the collective that `in` is in, and for whom.
inline std::string waiting_in_words(std::span<const rank_dump> dumps, const event& in) {
  std::vector<int> waiting, missing;
  std::int64_t longest = 0, shortest = INT64_MAX;
  int last_to_enter = -1;
  std::string others;
  for (const rank_dump& each : dumps) {
    const event* last = last_of(each);
    const bool here = last != nullptr && last->end_ns == 0 && to_string(*last) == to_string(in);
    if (here) {
      waiting.push_back(each.rank);
      const std::int64_t waited = each.at_ns - last->begin_ns;
      longest = std::max(longest, waited);
      if (waited < shortest) {
        shortest = waited;
        last_to_enter = each.rank;
      }
    } else if (last == nullptr || last->collective < in.collective) {
      missing.push_back(each.rank);
      others += ", which " + whereabouts(each);
    }
  }
  std::string text = name_ranks(waiting) + (waiting.size() == 1 ? " waits in " : " wait in ") + to_string(in);
  if (missing.size() == 1) {
    text += " for " + name_ranks(missing) + others;
  } else if (!missing.empty()) {
    text += " for " + name_ranks(missing);
  } else if (const std::vector<int> absent = ranks_without(dumps); !absent.empty()) {
    text += " for " + name_ranks(absent) + ", it seems";
  } else {
    text += ", which every rank here has entered, as the last one rank " + std::to_string(last_to_enter) + ", " +
            seconds_in_words(shortest) + " before its dump";
  }
  return text + " (for " + seconds_in_words(longest) + ")\n";
}

}  // namespace detail

/// Sentences, one a line: the ranks that wait, collective by collective, the latest first; then where everybody else was.
inline std::string who_was_where(std::span<const rank_dump> dumps) {
  std::vector<event> entered;
  for (const rank_dump& each : dumps) {
    if (const event* last = detail::last_of(each); last != nullptr && last->end_ns == 0) {
      const bool known =
          std::ranges::any_of(entered, [&](const event& of) { return to_string(of) == to_string(*last); });
      if (!known) {
        entered.push_back(*last);
      }
    }
  }
  std::ranges::sort(entered, [](const event& a, const event& b) { return a.collective > b.collective; });
  std::string text;
  for (std::size_t i = 0; i < entered.size(); ++i) {
    text += detail::waiting_in_words(dumps, entered[i]);
    if (i != 0 && entered[i].collective == entered[i - 1].collective) {
      text += "  that is the same number: ranks entered different collectives\n";
    }
  }
  for (const rank_dump& each : dumps) {
    if (const event* last = detail::last_of(each); last == nullptr || last->end_ns != 0) {
      text += "rank " + std::to_string(each.rank) + " is in no collective and " + detail::whereabouts(each) + "\n";
    }
  }
  if (const std::vector<int> absent = detail::ranks_without(dumps); !absent.empty()) {
    text += "there is no dump of " + detail::name_ranks(absent) + "\n";
  }
  for (const rank_dump& each : dumps) {
    text += "rank " + std::to_string(each.rank) + " wrote because of: " + each.reason + "\n";
  }
  return text;
}

}  // namespace gradweave
