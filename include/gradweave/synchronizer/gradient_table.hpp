/// @file
/// The gradients of a sealed manifest: where each lies, and whether it is ready in the present step.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>

namespace gradweave::detail {

/// `mark_ready` may be called from any thread; everything else belongs to the lane, or to the caller between steps.
class gradient_table {
 public:
  explicit gradient_table(manifest gradients) : manifest_(std::move(gradients)), states_(manifest_.size()) {}

  std::size_t size() const { return states_.size(); }
  std::span<const manifest_entry> entries() const { return manifest_.entries(); }
  const std::string& name(slot which) const { return entries()[which.index].name; }
  std::size_t bytes() const { return bytes_; }
  std::byte* memory(slot which) const { return states_[which.index].memory; }

  std::vector<slot_size> sizes() const {
    std::vector<slot_size> sizes;
    for (const manifest_entry& entry : entries()) {
      sizes.push_back({entry.gradient.kind(), entry.gradient.bytes()});
    }
    return sizes;
  }

  /// Throws contract_violation where a gradient or parameter lies elsewhere than in `space`.
  void check_memory_space(memory_space space) const {
    for (const manifest_entry& entry : entries()) {
      if (entry.gradient.space() != space || (entry.parameter && entry.parameter->space() != space)) {
        violate("slot '" + entry.name + "' lies in another memory space than the " +
                std::string(memory_space_name(space)) + " memory that the backend works on");
      }
    }
  }

  /// Gives every slot its place in the arena, and points the tensors there that asked for it.
  void place(const arena_layout& layout, std::byte* arena) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      manifest_entry& entry = manifest_.entries()[i];
      state& each = states_[i];
      each.bytes = entry.gradient.bytes();
      bytes_ += each.bytes;
      each.copied = entry.where == residence::own && each.bytes != 0;
      each.memory = entry.where == residence::adopted ? entry.gradient.data() : arena + layout.offsets[i];
      if (entry.where == residence::arena) {
        entry.gradient.rebind(each.memory);
      }
    }
  }

  /// Begins a step. Slots that are ready carry its number, so none of them has to be touched here.
  void begin_step() { ++epoch_; }

  /// Marks a slot as ready and copies its gradient into the arena if it does not live there. Throws contract_violation
  /// for a slot that does not exist or is ready already.
  void mark_ready(slot which, bool copy) {
    if (which.index >= states_.size()) [[unlikely]] {
      violate("ready: slot " + std::to_string(which.index) + " is not one of this manifest's " +
              std::to_string(states_.size()));
    }
    state& each = states_[which.index];
    const bool copied = copy && each.copied;
    if (copied) {
      each.tensor = entries()[which.index].gradient.data();  // may throw: before the slot counts as ready
    }
    if (each.ready_in.exchange(epoch_, std::memory_order_relaxed) == epoch_) [[unlikely]] {
      violate("ready: slot '" + name(which) + "' is ready for the second time in one step; was backward called twice?");
    }
    if (copied) {
      std::memcpy(each.memory, each.tensor, each.bytes);
    }
  }

  bool is_ready(slot which) const { return states_[which.index].ready_in.load(std::memory_order_relaxed) == epoch_; }

  /// Copies a reduced gradient to where it came from, if it does not live in the arena.
  void copy_back(slot which) {
    const state& each = states_[which.index];
    if (each.copied) {
      std::memcpy(each.tensor, each.memory, each.bytes);
    }
  }

 private:
  struct state {
    std::atomic<std::uint32_t> ready_in{0};  // the epoch in which it last became ready
    bool copied = false;                     // it lives in the tensor, not where the collectives work
    std::byte* memory = nullptr;             // where the collectives work on it
    std::byte* tensor = nullptr;             // where it was when it became ready
    std::size_t bytes = 0;
  };

  manifest manifest_;
  std::vector<state> states_;
  std::size_t bytes_ = 0;
  std::uint32_t epoch_ = 0;  // 0 is before the first step
};

}  // namespace gradweave::detail
