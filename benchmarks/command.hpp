// What the benchmarks' command lines have in common.
#pragma once

#include <cstddef>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace gradweave::bench {

/// "4K", "1M", "2G" or a number. Throws std::invalid_argument for anything else.
inline std::size_t bytes_of(const std::string& text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  const std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  const std::size_t known = std::string("KMG").find(unit);
  if (digits == 0 || text.empty() || text.size() - unit.size() > 12 ||
      (!unit.empty() && (unit.size() != 1 || known == std::string::npos))) {
    throw std::invalid_argument("'" + text + "' is no size: give bytes, or a number with K, M or G");
  }
  const std::size_t bytes = std::stoul(text);
  return unit.empty() ? bytes : bytes << (10 * (known + 1));
}

/// The status that `run(count, arguments)` returns; 1 and a sentence where it throws.
template <class Run>
int run_command(Run&& run, int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

}  // namespace gradweave::bench
