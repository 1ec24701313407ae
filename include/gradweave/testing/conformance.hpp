/// @file
/// What a conformance kit returns, and the tools that the kits are made of. A kit is a function that takes a model of
/// one of the library's concepts, puts it through what the concept's documentation promises beyond what a compiler can
/// check, and returns a report. It needs no test framework: `CHECK_MESSAGE(report.passed(), to_string(report))`.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/description.hpp>

namespace gradweave::testing {

/// What a kit found: failures as sentences, each kept once, and how many checks were made.
class conformance_report {
 public:
  static constexpr std::size_t failures_kept_max = 24;

  void count_check() { ++checks_; }

  void fail(std::string sentence) {
    failed_ = true;
    if (failures_.size() < failures_kept_max &&
        std::find(failures_.begin(), failures_.end(), sentence) == failures_.end()) {
      failures_.push_back(std::move(sentence));
    }
  }

  /// Whether something was checked, and nothing failed.
  bool passed() const { return checks_ != 0 && !failed_; }
  std::span<const std::string> failures() const { return failures_; }
  std::uint64_t checks() const { return checks_; }

 private:
  std::vector<std::string> failures_;
  std::uint64_t checks_ = 0;
  bool failed_ = false;
};

/// "passed: 120 checks", or a line a failure.
inline std::string to_string(const conformance_report& report) {
  const std::string checks = std::to_string(report.checks()) + " checks";
  if (report.passed()) {
    return "passed: " + checks;
  }
  std::string text = "failed: " + checks;
  for (const std::string& sentence : report.failures()) {
    text += "\n  - " + sentence;
  }
  return text;
}

/// Whether one of the failures contains `words`: for tests of a kit itself.
inline bool mentions(const conformance_report& report, std::string_view words) {
  return std::any_of(report.failures().begin(), report.failures().end(),
                     [&](const std::string& sentence) { return sentence.find(words) != std::string::npos; });
}

/// Collects checks from several threads.
class conformance_recorder {
 public:
  /// Counts a check; where `condition` does not hold, keeps `sentence`, a string or a callable that makes one.
  template <class Sentence>
  bool check(bool condition, const Sentence& sentence) {
    std::lock_guard lock(mutex_);
    report_.count_check();
    if (!condition) {
      if constexpr (std::invocable<const Sentence&>) {
        report_.fail(sentence());
      } else {
        report_.fail(std::string(sentence));
      }
    }
    return condition;
  }

  void fail(std::string sentence) { check(false, sentence); }

  /// Runs one part of a kit. What it throws is a failure: "`what`: threw ...".
  template <std::invocable Part>
  void part(const std::string& what, Part&& part) {
    try {
      std::forward<Part>(part)();
    } catch (const std::exception& thrown) {
      fail(what + ": threw " + thrown.what());
    } catch (...) {
      fail(what + ": threw something that is no std::exception");
    }
  }

  conformance_report report() const {
    std::lock_guard lock(mutex_);
    return report_;
  }

 private:
  mutable std::mutex mutex_;
  conformance_report report_;
};

/// The same numbers on every platform for a seed: splitmix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16).
class random_source {
 public:
  explicit random_source(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }

  /// From 0 to `bound` - 1; 0 where `bound` is 0.
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : static_cast<std::size_t>(next() % bound); }

  /// From -1 to 1.
  double signed_unit() { return static_cast<double>(static_cast<std::int64_t>(next())) * 0x1p-63; }

 private:
  std::uint64_t state_;
};

/// What `described` says of itself.
template <describes_itself Described>
std::vector<description::entry> entries_of(const Described& described) {
  description said;
  described.describe(said);
  return said.entries();
}

/// Checks what ranks rely on when they compare policies: each value describes itself with its name first, its copy
/// alike and equal, and values that differ by `==` differ in what they say. Pass values with each option changed in
/// turn.
template <policy_value Policy>
conformance_report check_description(std::span<const Policy> values) {
  conformance_recorder recorder;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string here = "value " + std::to_string(i) + ": ";
    const auto said = entries_of(values[i]);
    recorder.check(!said.empty() && said.front().key == "name" && !said.front().value.empty(),
                   here + "describe() must begin with the entry 'name'");
    const Policy copy = values[i];
    recorder.check(copy == values[i], here + "a copy must compare equal");
    recorder.check(entries_of(copy) == said, here + "a copy must describe itself alike, at every call");
    for (std::size_t j = 0; j < i; ++j) {
      const bool equal = values[i] == values[j];
      recorder.check(equal == (entries_of(values[j]) == said), [&] {
        return here + (equal ? "it equals value " : "it differs from value ") + std::to_string(j) +
               ", but describe() " +
               (equal ? "tells them apart" : "says the same of both; add the options that differ");
      });
    }
  }
  return recorder.report();
}

template <policy_value Policy>
conformance_report check_description(std::initializer_list<Policy> values) {
  return check_description(std::span<const Policy>(values.begin(), values.size()));
}

}  // namespace gradweave::testing
