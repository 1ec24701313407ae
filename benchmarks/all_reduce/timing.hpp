// Times and what is made of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace gradweave::bench {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Microseconds a call of `body`, of so many calls.
template <class Body>
double time_of(std::size_t calls, Body&& body) {
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < calls; ++i) {
    body();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - began).count() /
         static_cast<double>(calls);
}

}  // namespace gradweave::bench
