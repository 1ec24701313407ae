/// @file
/// Times and bytes of the present step, added to the totals when it ends.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include <gradweave/statistics.hpp>

namespace gradweave::detail {

class step_meter {
 public:
  using clock = std::chrono::steady_clock;

  clock::time_point made_at() const { return made_at_; }

  void begin(std::uint64_t bytes_sent) {
    bytes_sent_before_ = bytes_sent;
    launched_ = false;
    backward_ended_ = {};
    began_ = clock::now();
  }

  std::chrono::nanoseconds since_begin() const { return clock::now() - began_; }

  void launch() {
    if (!launched_) {
      launched_ = true;
      first_launch_ = clock::now();
    }
  }
  void last_collective_ended() { last_end_ = clock::now(); }
  void backward_ended() { backward_ended_ = clock::now(); }

  void end(std::uint64_t bytes_sent, std::size_t bytes_raw, std::uint64_t non_finite, sync_statistics& totals) const {
    const auto now = clock::now();
    ++totals.steps;
    totals.step_time += now - began_;
    if (launched_) {
      totals.communication_time += last_end_ - first_launch_;
      totals.exposed_time += last_end_ - std::max(first_launch_, backward_ended_);
    }
    totals.bytes_raw += bytes_raw;
    totals.bytes_on_wire += bytes_sent - bytes_sent_before_;
    totals.non_finite += non_finite;
  }

 private:
  clock::time_point made_at_ = clock::now();
  bool launched_ = false;
  std::uint64_t bytes_sent_before_ = 0;
  clock::time_point began_{};
  clock::time_point first_launch_{};
  clock::time_point last_end_{};
  clock::time_point backward_ended_{};
};

}  // namespace gradweave::detail
