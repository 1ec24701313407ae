/// @file
/// What a rank does with its own processor in a collective: copying, dividing and combining ranges that lie in pieces.
/// Each piece holds whole elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include <gradweave/element.hpp>
#include <gradweave/element/combine.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave {

/// Ranges of the same length.
inline void copy_range(const buffer_range& from, const buffer_range& to) {
  for (std::size_t copied = 0; copied != from.bytes;) {
    const auto source = from.piece_at(copied, from.bytes);
    const auto target = to.piece_at(copied, source.size());
    std::memcpy(target.data(), source.data(), target.size());
    copied += target.size();
  }
}

inline void divide_range(element_kind kind, const buffer_range& range, std::uint32_t divisor) {
  if (divisor != 1) {
    for_each_piece(range.buffer, range.begin, range.bytes, [&](std::byte* memory, std::size_t bytes) {
      divide(kind, memory, bytes / element_bytes(kind), divisor);
    });
  }
}

/// Combines ranges of the same length into ranges of that length, some at a time. Keeps its capacity.
class range_combiner {
 public:
  void clear() {
    sources_.clear();
    targets_.clear();
  }
  void add_source(const buffer_range& range) { sources_.push_back(range); }
  void add_target(const buffer_range& range) { targets_.push_back(range); }

  /// Goes on at `offset` for about `bytes_max` bytes; returns how many it did.
  std::size_t combine_some(const reduction& reduce, element_kind kind, std::size_t offset, std::size_t bytes_max) {
    std::size_t done = 0;
    const std::size_t bytes = std::min(bytes_max, targets_.front().bytes - offset);
    from_.resize(sources_.size());
    to_.resize(targets_.size());
    while (done != bytes) {
      std::size_t together = bytes - done;
      for (const auto* ranges : {&sources_, &targets_}) {
        for (const buffer_range& range : *ranges) {
          together = range.piece_at(offset + done, together).size();
        }
      }
      const auto memory = [&](const buffer_range& range) { return range.piece_at(offset + done, together).data(); };
      std::transform(sources_.begin(), sources_.end(), from_.begin(), memory);
      std::transform(targets_.begin(), targets_.end(), to_.begin(), memory);
      combine(reduce, kind, from_, to_, together / element_bytes(kind));
      done += together;
    }
    return done;
  }

 private:
  std::vector<buffer_range> sources_;
  std::vector<buffer_range> targets_;
  std::vector<const std::byte*> from_;
  std::vector<std::byte*> to_;
};

}  // namespace gradweave
