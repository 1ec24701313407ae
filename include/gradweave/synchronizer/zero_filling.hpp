/// @file
/// Gradients that no backward pass computed on this rank, under unused::zero_fill: they take part as zeros, and stay as
/// they were where no rank has used them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// Those of the present step. Keeps its capacity.
class zero_filling {
 public:
  void begin_step() {
    filled_.clear();
    kept_.clear();
  }

  /// At the end of a backward pass: fills what was not used, and tells `filled(slot)`.
  template <class Filled>
  void fill_unused(const gradient_table& gradients, Filled&& filled) {
    for (std::uint32_t i = 0; i < gradients.size(); ++i) {
      if (!gradients.is_ready({i})) {
        fill(gradients, {i});
        filled(slot{i});
      }
    }
  }

  /// The same on ranks that filled the same slots (FNV-1a over their numbers); 0 for none.
  std::uint64_t digest() const {
    std::uint64_t hash = filled_.empty() ? 0 : 0xcbf29ce484222325U;
    for (const slot each : filled_) {
      hash = (hash ^ each.index) * 0x100000001b3U;
    }
    return hash;
  }

  /// After the step: what another rank has used becomes the average, and is returned; the rest becomes what it was.
  template <host_backend Backend>
  std::span<const slot> settle(Backend& backend, gradient_table& gradients, const step_outcome& outcome,
                               bool has_data) {
    if (outcome.slots_differ) {
      exchange(backend, gradients.size());
    }
    const bool all_used = !outcome.slots_differ && !has_data && outcome.live >= 0;
    std::size_t kept = 0;
    averages_.clear();
    for (const slot which : filled_) {
      const std::span<std::byte> memory = gradients.range(which);
      const bool copied = gradients.is_copied(which);
      if (all_used || (outcome.slots_differ && is_used_anywhere(which))) {
        gradients.copy_out(which);
        averages_.push_back(which);
      } else if (!copied && !memory.empty()) {
        std::memcpy(memory.data(), kept_.data() + kept, memory.size());
      }
      kept += copied ? 0 : memory.size();
    }
    return averages_;
  }

 private:
  /// Makes the memory that the collectives work on zeros. What a gradient itself lives in is kept first.
  void fill(const gradient_table& gradients, slot which) {
    const std::span<std::byte> memory = gradients.range(which);
    filled_.push_back(which);
    if (!gradients.is_copied(which)) {
      kept_.insert(kept_.end(), memory.begin(), memory.end());
    }
    if (!memory.empty()) {
      std::memset(memory.data(), 0, memory.size());
    }
  }

  /// Of all ranks: one bit a slot, set where it was used.
  template <host_backend Backend>
  void exchange(Backend& backend, std::size_t slots) {
    const std::size_t bytes = (slots + 7) / 8;
    const auto ranks = static_cast<std::size_t>(backend.size());
    used_.assign(bytes * ranks, std::byte{0xff});
    pieces_.clear();
    for (std::size_t r = 0; r <= ranks; ++r) {
      pieces_.push_back(r * bytes);
    }
    std::byte* const own = used_.data() + static_cast<std::size_t>(backend.rank()) * bytes;
    for (const slot each : filled_) {
      own[each.index / 8] &= ~(std::byte{1} << (each.index % 8));
    }
    const extent whole{used_.data(), used_.size(), 0};
    run_collective(
        backend,
        {.operation = collective::all_gather, .kind = element_kind::uint8, .data = {&whole, 1}, .pieces = pieces_});
    for (std::size_t r = 1; r < ranks; ++r) {
      for (std::size_t i = 0; i < bytes; ++i) {
        used_[i] |= used_[r * bytes + i];
      }
    }
  }

  bool is_used_anywhere(slot which) const {
    return (used_[which.index / 8] & (std::byte{1} << (which.index % 8))) != std::byte{0};
  }

  std::vector<slot> filled_;
  std::vector<slot> averages_;
  std::vector<std::byte> kept_;  // of those filled that are not copied, one after another
  std::vector<std::byte> used_;  // by rank and slot; the first rank's becomes that of all
  std::vector<std::size_t> pieces_;
};

}  // namespace gradweave::detail
