/// @file
/// What ranks compare before the first step: whatever the others send, a rank agrees or throws a sync_error that names
/// who differs, and allocates no more than the bound of a text.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gradweave/description.hpp>
#include <gradweave/error.hpp>
#include <gradweave/synchronizer/agreement.hpp>

#include "tests/fuzz/check.hpp"
#include "tests/fuzz/scripted_backend.hpp"

namespace gradweave::fuzz {

/// What this rank says.
inline description own_description() {
  description said;
  said.add("gradient 0", "'w' float32 [2, 3]");
  said.add("bucketing.name", "per_tensor");
  return said;
}

inline bool is_difference(const failure& cause) {
  return cause.code == errc::manifest_mismatch && cause.rank == 2 && !cause.detail.empty();
}

inline void agreement(bytes_view input) {
  const description own = own_description();
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  const std::vector<description::entry> theirs = detail::deserialize(text);
  description same;
  for (const description::entry& each : theirs) {
    same.add(each.key, each.value);
  }
  check(text.starts_with(detail::serialize(same)), "entries are what came");
  check(is_difference(detail::first_difference(theirs, own, 2)), "a difference is told");
  check(is_difference(detail::first_difference(theirs, same, 2)), "that there is no difference is told");

  scripted_backend backend(3, input);
  try {
    detail::agree(backend, own);
    const std::string mine = detail::serialize(own);
    const std::uint64_t expected[] = {detail::digest_of(mine), mine.size(), detail::digest_of(mine), mine.size()};
    const auto digests = std::as_bytes(std::span(expected));
    check(input.size() >= digests.size() && std::equal(digests.begin(), digests.end(), input.begin()),
          "ranks agree only where all say the same");
  } catch (const sync_error& told) {
    check(is_lost(told) || told.cause().code == errc::manifest_mismatch, "ranks that differ are told so");
    check(told.rank() >= 0 && told.rank() < 3, "a difference names a rank");
  }
}

}  // namespace gradweave::fuzz
