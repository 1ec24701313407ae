/// @file
/// The gradients of a sealed manifest: where each lies, and how often it was used in the present step.
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
#include <gradweave/bucketing/slice.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>

namespace gradweave::detail {

/// `mark_used` may be called from any thread; everything else belongs to the lane, or to the caller between steps.
class gradient_table {
 public:
  explicit gradient_table(manifest gradients) : manifest_(std::move(gradients)), states_(manifest_.size()) {}

  std::size_t size() const { return states_.size(); }
  std::span<const manifest_entry> entries() const { return manifest_.entries(); }
  std::span<const manifest_buffer> buffers() const { return manifest_.buffers(); }
  const std::string& name(slot which) const { return entries()[which.index].name; }
  std::size_t bytes() const { return bytes_; }
  std::byte* memory(slot which) const { return states_[which.index].memory; }
  std::span<std::byte> range(slot which) const { return {memory(which), states_[which.index].bytes}; }

  std::vector<slot_size> sizes() const {
    std::vector<slot_size> sizes;
    for (const manifest_entry& entry : entries()) {
      sizes.push_back({entry.gradient.kind(), entry.gradient.bytes()});
    }
    return sizes;
  }

  /// Throws contract_violation where a gradient, parameter or buffer lies elsewhere than in `space`.
  void check_memory_space(memory_space space) const {
    const auto check = [&](const char* what, const std::string& name, const gradient_view& view) {
      if (view.space() != space) {
        violate(what + name + "' lies in another memory space than the " + std::string(memory_space_name(space)) +
                " memory that the backend works on");
      }
    };
    for (const manifest_entry& entry : entries()) {
      check("slot '", entry.name, entry.gradient);
      check("slot '", entry.name, entry.parameter.value_or(entry.gradient));
    }
    for (const manifest_buffer& buffer : buffers()) {
      check("buffer '", buffer.name, buffer.value);
    }
  }

  /// Gives every slot its place in the arena, and points the tensors there that asked for it.
  void place(const arena_layout& layout, std::byte* arena) {
    for (std::size_t i = 0; i < states_.size(); ++i) {
      manifest_entry& entry = manifest_.entries()[i];
      state& each = states_[i];
      each.bytes = entry.gradient.bytes();
      each.uses = entry.uses;
      bytes_ += each.bytes;
      each.copied = entry.where == residence::own && each.bytes != 0;
      each.memory = entry.where == residence::adopted ? entry.gradient.data() : arena + layout.offsets[i];
      if (entry.where == residence::arena) {
        entry.gradient.rebind(each.memory);
      }
    }
  }

  /// Begins a pass; `sent`: the one before was sent, so that nothing is accumulated. Slots that were used carry the number
  /// of their pass, so none of them has to be touched here.
  void begin_step(bool sent = true) {
    sent_ = sent ? epoch_ : sent_;
    ++epoch_;
  }

  /// From now on slots are ready only once learn() has counted their uses.
  void record_uses() {
    for (state& each : states_) {
      each.uses = unknown;
    }
  }

  /// Counts a use of a slot. True with the last one that it has in a step: then it is ready, and its gradient is copied
  /// into the arena if it does not live there; what other threads wrote before their uses is seen. Throws
  /// contract_violation for a slot that does not exist or is ready.
  bool mark_used(slot which, bool copy) {
    if (which.index >= states_.size()) [[unlikely]] {
      violate("ready: slot " + std::to_string(which.index) + " is not one of this manifest's " +
              std::to_string(states_.size()));
    }
    state& each = states_[which.index];
    std::uint64_t before = each.used.load(std::memory_order_relaxed);
    for (;;) {
      const std::uint32_t uses = uses_in(before);
      if (uses >= each.uses) [[unlikely]] {
        violate_uses(which);
      }
      const bool last = uses + 1 == each.uses;
      // It may throw: before the use counts.
      std::byte* const tensor = last && copy && each.copied ? entries()[which.index].gradient.data() : nullptr;
      if (each.used.compare_exchange_weak(before, epoch_ << 32 | (uses + 1), std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
        if (tensor != nullptr) {
          each.tensor = tensor;
          std::memcpy(each.memory, each.tensor, each.bytes);
        }
        return last;
      }
    }
  }

  /// Takes the uses in this step for those in every step, and calls `is_ready(slot)` for what was used at all, after its
  /// gradient has been copied as by mark_used. What was not used is expected once from now on.
  template <class IsReady>
  void learn(bool copy, IsReady&& is_ready) {
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      state& each = states_[i];
      const std::uint32_t uses = uses_in(each.used.load(std::memory_order_relaxed));
      each.uses = uses == 0 ? 1 : uses;
      if (uses != 0) {
        copy_in(slot{i}, copy);
        is_ready(slot{i});
      }
    }
  }

  /// Takes what this pass has not used, but one since the last that was sent, for ready with what it holds: calls
  /// `is_ready(slot)` after its gradient has been copied as by mark_used.
  template <class IsReady>
  void take_accumulated(bool copy, IsReady&& is_ready) {
    for (std::uint32_t i = 0; i < states_.size(); ++i) {
      state& each = states_[i];
      const std::uint64_t pass = each.used.load(std::memory_order_relaxed) >> 32;
      if (pass > sent_ && pass != epoch_) {
        each.used.store(epoch_ << 32 | each.uses, std::memory_order_relaxed);
        copy_in(slot{i}, copy);
        is_ready(slot{i});
      }
    }
  }

  bool is_ready(slot which) const { return uses(which) == states_[which.index].uses; }

  /// How often it was used in this step.
  std::uint32_t uses(slot which) const { return uses_in(states_[which.index].used.load(std::memory_order_relaxed)); }
  std::uint32_t uses_expected(slot which) const { return states_[which.index].uses; }

  /// Whether the gradient lives in the tensor, not where the collectives work.
  bool is_copied(slot which) const { return states_[which.index].copied; }

  /// Copies a reduced gradient, or a slice of it, to where it came from, if it does not live in the arena.
  void copy_back(slot which, slot_slice part) {
    const state& each = states_[which.index];
    if (each.copied) {
      const std::size_t width = element_bytes(entries()[which.index].gradient.kind());
      std::memcpy(each.tensor + part.begin * width, each.memory + part.begin * width, part.elements * width);
    }
  }

  /// The same for a gradient that was not copied from anywhere in this step.
  void copy_out(slot which) {
    if (is_copied(which)) {
      states_[which.index].tensor = entries()[which.index].gradient.data();
      copy_back(which, {0, entries()[which.index].gradient.elements()});
    }
  }

 private:
  static constexpr std::uint32_t unknown = UINT32_MAX;

  struct state {
    std::atomic<std::uint64_t> used{0};  // the epoch in which it last was, and how often in that one
    std::uint32_t uses = 1;              // so often in each step, then it is ready
    bool copied = false;
    std::byte* memory = nullptr;  // where the collectives work on it
    std::byte* tensor = nullptr;  // where it was when it became ready
    std::size_t bytes = 0;
  };

  void copy_in(slot which, bool copy) {
    state& each = states_[which.index];
    if (copy && each.copied) {
      each.tensor = entries()[which.index].gradient.data();
      std::memcpy(each.memory, each.tensor, each.bytes);
    }
  }

  std::uint32_t uses_in(std::uint64_t used) const {
    return used >> 32 == epoch_ ? static_cast<std::uint32_t>(used) : 0;
  }

  [[noreturn]] void violate_uses(slot which) const {
    const std::uint32_t uses = uses_expected(which);
    violate(
        "ready: slot '" + name(which) + "' is ready " +
        (uses == 1 ? "for the second time in one step" : "more than " + std::to_string(uses) + " times in one step") +
        "; was backward called twice?");
  }

  manifest manifest_;
  std::vector<state> states_;
  std::size_t bytes_ = 0;
  std::uint64_t epoch_ = 0;  // of the present pass; 0 is before the first
  std::uint64_t sent_ = 0;   // of the last pass before it that was sent
};

}  // namespace gradweave::detail
