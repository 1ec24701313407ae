/// @file
/// Environment variables, and whole numbers in them.
#pragma once

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

#include <gradweave/assert.hpp>

namespace gradweave {

/// What a variable holds, nothing where it is not set.
inline std::optional<std::string> environment_variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

namespace detail {

/// The number that the variable `name` holds. Throws contract_violation for anything else, or a number out of bounds.
inline long number_in(const char* name, const std::string& text, long least, long most) {
  long value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    violate(std::string("the environment variable ") + name + " is '" + text + "'; it has to be a whole number from " +
            std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

}  // namespace detail

}  // namespace gradweave
