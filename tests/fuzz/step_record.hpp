/// @file
/// Step records: whatever the others send, they ended the same step or a sync_error names who did not.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include <gradweave/backend/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/synchronizer/rank_table.hpp>
#include <gradweave/synchronizer/rank_watch.hpp>
#include <gradweave/synchronizer/step_record.hpp>

#include "tests/fuzz/check.hpp"
#include "tests/fuzz/scripted_backend.hpp"

namespace gradweave::fuzz {

inline void step_record(bytes_view input) {
  detail::step_record own;
  own.step = 7;
  own.accumulated = 9;
  own.non_finite = 2;
  std::array<detail::step_record, 2> others{};
  std::copy_n(input.begin(), std::min(input.size(), sizeof others), std::as_writable_bytes(std::span(others)).begin());
  const bool same = std::ranges::all_of(others, [&](const detail::step_record& other) {
    return other.step == own.step && other.plan_version == own.plan_version &&
           (other.has_data == 0 || (other.accumulated == own.accumulated && other.loss_scale == own.loss_scale));
  });

  scripted_backend backend(3, input);
  detail::rank_table<detail::step_record> records(backend.rank(), backend.size());
  try {
    run_collective(backend, records.request(own));
    const std::uint64_t counted = detail::outcome_of(records.values()).non_finite;
    check(same, "steps that are taken to be the same are");
    const slowest_rank slowest = detail::rank_watch(3).add(records.values());
    check(slowest.rank >= 0 && slowest.rank < 3 && slowest.behind.count() >= 0, "the slowest is a rank");
    check(counted == 2 + others[0].non_finite + others[1].non_finite, "counts are summed over all ranks");
  } catch (const sync_error& told) {
    check(is_lost(told) || !same, "the same step is no mismatch");
    check(is_lost(told) || (told.cause().code == errc::collective_mismatch && told.rank() > 0 && told.rank() < 3),
          "a mismatch names a rank");
  }
}

}  // namespace gradweave::fuzz
