/// @file
/// Combining several arrays into one: what a rank does with all ranks' contributions to its piece, in one pass over
/// memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include <gradweave/assert.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>
#include <gradweave/element/instruction_set.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave {

/// The most arrays that are combined at once.
inline constexpr std::size_t combine_sources_max = 1024;

namespace detail {

/// A stretch of this size stays in the first-level cache while it is combined, divided and copied.
inline constexpr std::size_t combine_block_bytes = std::size_t{8} << 10;

/// Sums halves in float, so that they are rounded once.
template <class Half>
void combine_halves(instruction_set set, std::uint32_t divisor, std::span<const std::byte* const> sources,
                    std::byte* target, std::size_t elements) noexcept {
  alignas(64) std::byte floats[combine_block_bytes / sizeof(Half) * sizeof(float)];
  decode<Half, decode_mode::assign>(set, sources[0], floats, elements);
  for (const std::byte* const source : sources.subspan(1)) {
    decode<Half, decode_mode::add>(set, source, floats, elements);
  }
  if (divisor > 1) {
    divide_elements<float>(set, floats, elements, divisor);
  }
  encode<Half>(set, floats, target, elements);
}

/// One block into `target`, which may be one of the first two sources.
template <class T>
void combine_block(instruction_set set, const reduction& reduce, std::span<const std::byte* const> sources,
                   std::byte* target, std::size_t elements) {
  if (is_half<T> && reduce.operation == reduction_operation::sum) {
    if constexpr (is_half<T>) {
      combine_halves<T>(set, reduce.divisor, sources, target, elements);
    }
    return;
  }
  const std::size_t bytes = elements * sizeof(T);
  std::size_t next = 1;
  if (sources.size() > 1 && target == sources[1]) {
    reduce_elements<T>(set, reduce.operation, target, sources[0], elements);  // both operations commute
    next = 2;
  } else if (target != sources[0]) {
    std::memcpy(target, sources[0], bytes);
  }
  for (; next < sources.size(); ++next) {
    reduce_elements<T>(set, reduce.operation, target, sources[next], elements);
  }
  if (reduce.divisor > 1) {
    divide_elements<T>(set, target, elements, reduce.divisor);
  }
}

}  // namespace detail

/// targets[t][i] = (operation over sources[0][i], sources[1][i], ..., in this order) / divisor, for every t. Sums of float16
/// and bfloat16 are added in float and rounded once. A target may be a source, in whole; nothing overlaps otherwise.
/// Throws contract_violation without a source or a target, or for an invalid kind, operation or divisor.
inline void combine(const reduction& reduce, element_kind kind, std::span<const std::byte* const> sources,
                    std::span<std::byte* const> targets, std::size_t elements) {
  require(!sources.empty() && !targets.empty(), "combine: needs a source and a target");
  require(sources.size() <= combine_sources_max && reduce.divisor >= 1 && reduce.divisor <= divisor_max,
          "combine: too many sources, or the divisor is not 1 to 2^24");
  visit_element(kind, [&]<class T>(std::type_identity<T>) {
    const detail::instruction_set set = detail::best_instruction_set();
    alignas(64) std::byte block[detail::combine_block_bytes];
    const bool in_place = targets[0] == sources[0] || (sources.size() > 1 && targets[0] == sources[1]);
    const std::byte* from[combine_sources_max];
    constexpr std::size_t block_elements = detail::combine_block_bytes / sizeof(T);
    for (std::size_t begin = 0; begin < elements; begin += block_elements) {
      const std::size_t count = std::min(block_elements, elements - begin);
      const std::size_t offset = begin * sizeof(T);
      std::transform(sources.begin(), sources.end(), from, [&](const std::byte* source) { return source + offset; });
      std::byte* const sum = in_place ? targets[0] + offset : block;
      detail::combine_block<T>(set, reduce, std::span(from, sources.size()), sum, count);
      for (std::byte* const target : targets) {
        if (target + offset != sum) {
          std::memcpy(target + offset, sum, count * sizeof(T));
        }
      }
    }
  });
}

}  // namespace gradweave
