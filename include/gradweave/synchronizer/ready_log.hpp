/// @file
/// In which order and when gradients became ready in a step: what bucketing policies plan by.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::detail {

/// `add` may be called from any thread, at most once a step for each slot. It allocates nothing.
class ready_log {
 public:
  explicit ready_log(std::size_t slots) : events_(slots) {}

  /// `keeps`: somebody asks for this step's events.
  void begin_step(bool keeps) {
    keeps_ = keeps;
    count_.store(0, std::memory_order_relaxed);
  }

  bool keeps() const { return keeps_; }

  void add(slot which, std::chrono::nanoseconds since_begin) {
    events_[count_.fetch_add(1, std::memory_order_relaxed)] = {which, since_begin};
  }

  /// Once the backward pass has ended.
  std::span<const ready_event> events() const {
    return std::span(events_).first(count_.load(std::memory_order_relaxed));
  }

 private:
  std::vector<ready_event> events_;
  std::atomic<std::size_t> count_{0};
  bool keeps_ = false;
};

}  // namespace gradweave::detail
