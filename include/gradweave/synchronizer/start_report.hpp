/// @file
/// What was set up, in words: GRADWEAVE_DEBUG asks for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/description.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/element.hpp>
#include <gradweave/environment_variable.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/report.hpp>
#include <gradweave/version.hpp>

namespace gradweave::detail {

inline std::string plan_in_words(const bucket_plan& plan, const gradient_table& gradients) {
  constexpr std::size_t listed_max = 32;
  std::string text = "  plan: " + std::to_string(gradients.size()) + " gradients in " +
                     std::to_string(plan.buckets.size()) + " buckets\n";
  const std::vector<slot_size> sizes = gradients.sizes();
  std::vector<std::size_t> bytes(plan.buckets.size());
  std::vector<bool> cut(plan.buckets.size());
  for_each_slice(plan, sizes, [&](std::size_t b, slot which, slot_slice part) {
    bytes[b] += part.elements * element_bytes(sizes[which.index].kind);
    cut[b] = cut[b] || part.elements != sizes[which.index].elements();
  });
  for (std::size_t b = 0; b < std::min(plan.buckets.size(), listed_max); ++b) {
    const slot first = plan.buckets[b].front(), last = plan.buckets[b].back();
    text += "    bucket " + std::to_string(b) + ": " + bytes_in_words(bytes[b]) + " " +
            std::string(element_name(sizes[first.index].kind)) + ", '" + gradients.name(first) + "'" +
            (first == last ? "" : " to '" + gradients.name(last) + "'") + (cut[b] ? ", in slices\n" : "\n");
  }
  return plan.buckets.size() <= listed_max ? text : text + "    and further ones\n";
}

/// `variables` are those of this rank.
template <class Engine>
std::string write_start_report(const Engine& engine, const description& variables) {
  std::string text =
      "gradweave " + std::string(version_string) + ": rank 0 of " + std::to_string(engine.size()) + " is set up\n";
  for (const description& each : {engine.describe(), engine.describe_here(), engine.describe_peers()}) {
    for (const auto& [key, value] : each.entries()) {
      text += "  " + key + " = " + value + "\n";
    }
  }
  text += plan_in_words(engine.plan(), engine.gradients());
  for (const auto& [key, value] : variables.entries()) {
    text += "  the environment's " + key + " = " + value + "\n";
  }
  return text;
}

/// On stderr, in one piece.
template <class Engine>
void print_start_report(const Engine& engine) {
  const std::string text = write_start_report(engine, honoured_variables(environment_variable));
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace gradweave::detail
