/// @file
/// Where a slot is cut that travels in slices. It follows from the slot's size and the number of slices alone, so that a
/// plan need not say it.
#pragma once

#include <algorithm>
#include <cstddef>

namespace gradweave {

/// Slots are cut at multiples of it: blocks of codecs, which never cross slots, never cross slices either.
inline constexpr std::size_t slice_granule_elements = 4096;

/// Elements [begin, begin + elements) of a slot.
struct slot_slice {
  std::size_t begin = 0;
  std::size_t elements = 0;
  friend bool operator==(const slot_slice&, const slot_slice&) = default;
};

/// One of `of` slices, counted from 0.
struct slice_place {
  std::size_t number = 0;
  std::size_t of = 1;
};

/// Into how many slices a slot of so many elements can be cut: each holds a granule at least. Bounded, so that plans are.
constexpr std::size_t slices_max(std::size_t elements) {
  constexpr std::size_t slot_slices_max = 256;
  return std::clamp<std::size_t>(elements / slice_granule_elements, 1, slot_slices_max);
}

/// All are of the same size but for one granule; the last takes what is left besides. `place.of` is at most slices_max.
constexpr slot_slice slice_at(std::size_t elements, slice_place place) {
  const std::size_t granules = elements / slice_granule_elements;
  const auto begin_of = [&](std::size_t number) { return granules * number / place.of * slice_granule_elements; };
  const std::size_t begin = begin_of(place.number);
  return {begin, (place.number + 1 == place.of ? elements : begin_of(place.number + 1)) - begin};
}

}  // namespace gradweave
