/// @file
/// Whether each gradient was used as often in a step as it should be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/bucket_set.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>

namespace gradweave::detail {

/// At the end of a backward pass: the first bucket that lacks gradients, and all that are lacking. Under zero_fill only
/// those count that were used, and not often enough. `counted`: the buckets know which of their gradients are ready.
template <bucket_program Program>
std::optional<failure> fault_of_uses(const gradient_table& gradients, const bucket_set<Program>& buckets, unused rule,
                                     bool counted) {
  std::optional<failure> cause;
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    if (counted && buckets[b].complete()) {
      continue;
    }
    for (const bucket_member& member : buckets[b].members) {
      const std::uint32_t uses = gradients.uses(member.which);
      const bool is_told = member.slot_begin != 0;  // with the first slice
      if (is_told || gradients.is_ready(member.which) || (uses == 0 && rule == unused::zero_fill)) {
        continue;
      }
      if (!cause) {
        cause.emplace();
        cause->code = errc::gradient_missing;
        cause->bucket = static_cast<std::int64_t>(b);
        cause->detail = "not ready at the end of the step; every gradient has to become ready in every step";
      }
      if (uses != 0) {
        cause->detail += "; '" + gradients.name(member.which) + "' was so " + std::to_string(uses) + " of " +
                         std::to_string(gradients.uses_expected(member.which)) + " times";
      }
      cause->slots.push_back(gradients.name(member.which));
    }
  }
  return cause;
}

}  // namespace gradweave::detail
