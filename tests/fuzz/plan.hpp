/// @file
/// Rank 0's plan: whatever arrives, it is a valid plan or a sync_error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/plan_exchange.hpp>

#include "tests/fuzz/check.hpp"
#include "tests/fuzz/scripted_backend.hpp"

namespace gradweave::fuzz {

inline void plan(bytes_view input) {
  constexpr slot_size small{element_kind::bfloat16, 2};
  constexpr slot_size large{element_kind::float32, 4000};
  constexpr slot_size cut{element_kind::float32, 4 * 3 * slice_granule_elements};
  constexpr std::array slots{large, cut, small, large, small};
  scripted_backend backend(2, input);
  try {
    const bucket_plan agreed = detail::agree_on_plan(backend, bucketing::per_tensor{}, slots, {});
    check(plan_fault(agreed, slots).empty(), "a plan that is taken is valid");
    const auto numbers = detail::encode_plan(agreed);
    check(numbers.size() >= slots.size() && numbers.size() <= slots.size() + 2, "a plan that is taken has all slots");
    std::array<std::size_t, slots.size()> elements{};
    for_each_slice(agreed, slots, [&](std::size_t, slot which, slot_slice part) {
      check(part.begin == elements[which.index], "slices follow one another");
      elements[which.index] += part.elements;
    });
    for (std::size_t i = 0; i < slots.size(); ++i) {
      check(elements[i] == slots[i].elements(), "a plan that is taken has all elements");
    }
    check(detail::decode_plan(numbers) == agreed, "a plan survives the way");
  } catch (const sync_error& told) {
    check(is_lost(told) || (told.cause().code == errc::plan_invalid && told.rank() == 0), "a wrong plan is rank 0's");
  }

  std::vector<std::uint32_t> numbers(input.size() / sizeof(std::uint32_t));
  if (!numbers.empty()) {
    std::memcpy(numbers.data(), input.data(), numbers.size() * sizeof(std::uint32_t));
    numbers.front() |= 1U << 31;
  }
  check(detail::encode_plan(detail::decode_plan(numbers)) == numbers, "numbers survive the way through a plan");
}

}  // namespace gradweave::fuzz
