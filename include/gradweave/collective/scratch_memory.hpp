/// @file
/// Where the scratch operands of a schedule lie: in what the collective's request lends, or else in memory of its own.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/extent.hpp>

namespace gradweave {

/// Keeps its memory: collectives that ask for no more than those before allocate nothing.
class scratch_memory {
 public:
  /// At least `bytes`: of `lent` where that is enough, so that a job has no scratch twice. Valid until the next call.
  extent at_least(std::size_t bytes, std::span<std::byte> lent) {
    if (lent.size() >= bytes) {
      return {lent.data(), lent.size(), 0};
    }
    if (own_.size() < bytes) {
      own_ = std::vector<std::byte>();  // given back first: nothing in it is needed any more
      own_.resize(bytes);
    }
    return {own_.data(), own_.size(), 0};
  }

 private:
  std::vector<std::byte> own_;
};

}  // namespace gradweave
