/// @file
/// What a synchronizer did, in words.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/statistics.hpp>

namespace gradweave::detail {

inline std::string decimal(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, value >= 100 ? "%.0f %s" : "%.3g %s", value, unit);
  return text;
}

inline std::string bytes_in_words(std::uint64_t bytes) {
  constexpr double step = 1024;
  const auto value = static_cast<double>(bytes);
  if (value < step) {
    return decimal(value, "B");
  }
  if (value < step * step) {
    return decimal(value / step, "KiB");
  }
  return value < step * step * step ? decimal(value / (step * step), "MiB")
                                    : decimal(value / (step * step * step), "GiB");
}

/// What the backend says of this rank alone, if anything: ranks need not share it.
template <class Backend>
description own_description(const Backend& backend) {
  description said;
  if constexpr (requires { backend.describe_here(said); }) {
    backend.describe_here(said);
  }
  return said;
}

/// What the backend says of the other ranks, if anything.
template <class Backend>
description peers_description(const Backend& backend) {
  description said;
  if constexpr (requires { backend.describe_peers(said); }) {
    backend.describe_peers(said);
  }
  return said;
}

/// What the report is made of.
struct report_input {
  int rank = 0;
  description said;
  description here;  ///< of this rank alone
  std::size_t slots = 0;
  std::size_t buckets = 0;
  std::vector<element_kind> uncompressed;  ///< kinds that the compression policy leaves as they are, though it has one
  sync_statistics statistics;
  std::span<const rank_statistics> ranks;
};

/// Whom the others waited for, if it was one rank in two thirds of the steps and cost at least a hundredth of their time:
/// somebody is always the last, by chance.
inline std::string slowest_in_words(const sync_statistics& done, std::span<const rank_statistics> ranks) {
  const auto steps_of = [](const rank_statistics& row) { return row.late_in_compute + row.late_in_network; };
  const auto by_steps = [&](const auto& a, const auto& b) { return steps_of(a) < steps_of(b); };
  const auto slowest = std::max_element(ranks.begin(), ranks.end(), by_steps);
  if (ranks.size() < 2 || 3 * steps_of(*slowest) <= 2 * done.steps || 100 * slowest->behind < done.step_time) {
    return "";
  }
  const auto number = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()); };
  std::string text = "  rank " + std::to_string(slowest - ranks.begin()) + " was the last in " +
                     std::to_string(steps_of(*slowest)) + " of " + std::to_string(done.steps) + " steps, " +
                     decimal(number(slowest->behind) / 1e6 / static_cast<double>(steps_of(*slowest)), "ms") +
                     " behind the median rank: ";
  if (slowest->late_in_compute < slowest->late_in_network) {
    return text + "a link to it is slow\n";
  }
  std::vector<std::chrono::nanoseconds> backward;
  for (const rank_statistics& each : ranks) {
    backward.push_back(each.backward_time);
  }
  const auto middle = backward.begin() + static_cast<std::ptrdiff_t>((backward.size() - 1) / 2);
  std::nth_element(backward.begin(), middle, backward.end());
  const double ratio = middle->count() == 0 ? 1 : number(slowest->backward_time) / number(*middle);
  if (ratio >= 1.05) {
    return text + "its backward pass takes " + decimal(ratio, "times") + " the median, so it computes slowly\n";
  }
  return text + "it begins its backward pass late\n";
}

inline std::string write_report(const report_input& input) {
  std::string text = "gradweave report of rank " + std::to_string(input.rank) + "\n";
  for (const description* each : {&input.said, &input.here}) {
    for (const auto& [key, value] : each->entries()) {
      text += "  " + key + " = " + value + "\n";
    }
  }
  text += "  gradients: " + std::to_string(input.slots) + " in " + std::to_string(input.buckets) + " buckets\n";
  for (const element_kind kind : input.uncompressed) {
    text += "  " + std::string(element_name(kind)) + " gradients travel uncompressed\n";
  }
  const sync_statistics& done = input.statistics;
  text += "  steps: " + std::to_string(done.steps) + "\n";
  if (done.steps != 0) {
    const auto milliseconds = [&](std::chrono::nanoseconds total) {
      return decimal(static_cast<double>(total.count()) / 1e6 / static_cast<double>(done.steps), "ms");
    };
    text += "  a step: " + milliseconds(done.step_time) + ", communication " + milliseconds(done.communication_time) +
            ", exposed " + milliseconds(done.exposed_time) + " (" + decimal(100 * done.exposed_share(), "%") + ")\n";
    text += "  a step: forward " + milliseconds(done.forward_time) + ", backward " + milliseconds(done.backward_time) +
            ", encoding " + milliseconds(done.encode_time) + ", decoding " + milliseconds(done.decode_time) + "\n";
    text += "  a step: " + bytes_in_words(done.bytes_raw / done.steps) + " of gradients, " +
            bytes_in_words(done.bytes_on_wire / done.steps) + " sent\n";
    text += slowest_in_words(done, input.ranks);
  }
  if (done.non_finite != 0) {
    text += "  encoded values that were not finite: " + std::to_string(done.non_finite) + "\n";
  }
  return text;
}

}  // namespace gradweave::detail
