/// @file
/// What a policy says of itself: its name and its options as text. Ranks compare descriptions when they seal a
/// manifest, and the report prints them.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gradweave {

/// An ordered list of (key, value) lines. A policy's `describe(description&)` adds its name first, then its options.
class description {
 public:
  struct entry {
    std::string key;
    std::string value;
    friend bool operator==(const entry&, const entry&) = default;
  };

  void add(std::string_view key, std::string_view value) {
    entries_.push_back({prefix_ + std::string(key), std::string(value)});
  }
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, bool value) { add(key, std::string_view(value ? "true" : "false")); }
  template <class Number>
    requires(std::integral<Number> || std::floating_point<Number>)
  void add(std::string_view key, Number value) {
    if constexpr (std::integral<Number>) {
      add(key, std::string_view(std::to_string(value)));
    } else {
      // The shortest text that reads back as the same number, whatever the locale: std::to_string keeps six digits.
      char text[64];
      const auto written = std::to_chars(text, text + sizeof text, value);
      add(key, std::string_view(text, static_cast<std::size_t>(written.ptr - text)));
    }
  }

  /// Adds what `policy` says of itself, each key prefixed with `role` and a dot.
  template <class Policy>
  void nest(std::string_view role, const Policy& policy) {
    std::string outer = prefix_;
    prefix_ += std::string(role) + ".";
    policy.describe(*this);
    prefix_ = std::move(outer);
  }

  const std::vector<entry>& entries() const { return entries_; }

 private:
  std::string prefix_;
  std::vector<entry> entries_;
};

/// Atom: `policy.describe(sink)`.
template <class Policy>
concept describes_itself = requires(const Policy& policy, description& sink) { policy.describe(sink); };

/// What every policy is: a copyable value that compares and describes itself.
template <class Policy>
concept policy_value = std::copyable<Policy> && std::equality_comparable<Policy> && describes_itself<Policy>;

}  // namespace gradweave
