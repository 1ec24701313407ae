/// @file
/// What fuzz targets share: a check that fails under libFuzzer and in a test alike, and random cuts that replay.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <stdexcept>
#include <string>

namespace gradweave::fuzz {

using bytes_view = std::span<const std::byte>;

/// Throws where a property does not hold: libFuzzer takes that for a crash and keeps the input.
inline void check(bool holds, const char* property) {
  if (!holds) {
    throw std::logic_error(std::string("does not hold: ") + property);
  }
}

/// Randomness that depends on the input alone, so that an input that was found fails again.
inline std::minstd_rand random_of(bytes_view input) {
  std::uint32_t seed = 2166136261U;
  for (const std::byte each : input) {
    seed = (seed ^ static_cast<std::uint32_t>(each)) * 16777619U;
  }
  return std::minstd_rand(seed);
}

}  // namespace gradweave::fuzz
