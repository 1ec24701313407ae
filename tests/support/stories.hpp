/// @file
/// Ranks as threads, with one gradient or more, and what they were told: for tests of rules.
#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>

namespace gradweave::tests {

/// Runs `body(backend)` on each rank; what the ranks that threw a sync_error were told.
template <class Body>
std::multiset<std::string> stories_of(int size, Body&& body) {
  std::mutex telling;
  std::multiset<std::string> told;
  backend::run_loopback(size,
                        [&](backend::loopback backend) {
                          try {
                            body(std::move(backend));
                          } catch (const sync_error& error) {
                            const std::lock_guard lock(telling);
                            told.insert(error.what());
                          }
                        },
                        {.timeout = std::chrono::seconds(20)});
  return told;
}

inline constexpr slot only{0};

/// A rank with one gradient, in the slot `only`.
template <class Gradient, class... Policies>
auto synchronize_one(backend::loopback backend, Gradient& gradient, Policies... policies) {
  manifest gradients;
  gradients.add("g", gradient);
  return synchronize(std::move(gradients), std::move(backend), policies...);
}

/// All of `size` ranks were told the same, and it says `part`.
inline void check_one_story(const std::multiset<std::string>& told, std::size_t size, const std::string& part) {
  REQUIRE(told.size() == size);
  CHECK_MESSAGE(std::set(told.begin(), told.end()).size() == 1, *told.begin() << *told.rbegin());
  CHECK_MESSAGE(told.begin()->find(part) != std::string::npos, *told.begin());
}

}  // namespace gradweave::tests
