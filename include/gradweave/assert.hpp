/// @file
/// Contracts: always-on checks of a caller's arguments. A broken contract throws, so that it unwinds through the step
/// that it happened in and reaches every rank, instead of ending one process and leaving its peers to guess.
#pragma once

#include <stdexcept>
#include <string>

namespace gradweave {

/// Where a contract was stated. (std::source_location, which clang 14 with libstdc++ 12 lacks.)
struct source_position {
  const char* file;
  unsigned line;

  static constexpr source_position current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

/// The caller broke a documented requirement. The message says what was wrong, where, and what to do.
class contract_violation : public std::logic_error {
 public:
  explicit contract_violation(const std::string& what) : std::logic_error("gradweave: " + what) {}
};

/// Throws contract_violation. For messages that have to be put together; call it from the unlikely branch.
[[noreturn]] inline void violate(const std::string& what, source_position where = source_position::current()) {
  throw contract_violation(what + " [" + where.file + ":" + std::to_string(where.line) + "]");
}

/// Throws contract_violation with `what` unless `condition` holds.
constexpr void require(bool condition, const char* what, source_position where = source_position::current()) {
  if (!condition) [[unlikely]] {
    violate(what, where);
  }
}

}  // namespace gradweave
