/// @file
/// How often each gradient is used in a step, and what becomes of those that are not used as often as they should be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/use_check.hpp>
#include <gradweave/synchronizer/zero_filling.hpp>

namespace gradweave::detail {

/// `mark` may be called from any thread; everything else belongs to the caller. What it refers to outlives it.
class use_ledger {
 public:
  use_ledger(gradient_table& gradients, const step_rules& rules, bool has_peers)
      : gradients_(gradients), rules_(rules), has_peers_(has_peers) {}

  /// Once gradients have their places.
  void seal() {
    if (rules_.uses == use_counts::recorded) {
      gradients_.record_uses();
      learning_ = true;
    }
  }

  /// `sending`: buckets travel, or it is an accumulation.
  void begin_step(bool sending) {
    if (std::exchange(sending_, sending)) {
      gradients_.begin_window();
    }
    gradients_.begin_step();
    zeros_.begin_step();
  }

  bool sending() const { return sending_; }

  /// Counts a use. True where the gradient is ready with it.
  bool mark(slot which) { return gradients_.mark_used(which, copies()); }

  /// At the end of a backward pass: each gradient has been used as often as it should, or is what accumulations
  /// left, or counts as zeros, as all do without data. Throws sync_error(gradient_missing) otherwise. `ready(slot)` takes what becomes ready only now.
  template <class Buckets, class Ready>
  void settle(const Buckets& buckets, bool has_data, Ready&& ready) {
    if (has_data && std::exchange(learning_, false)) {
      gradients_.learn(copies(), ready);
    }
    if (has_data && sending_ && rules_.unused_gradients == unused::zero_fill) {
      gradients_.take_accumulated(copies(), ready);
    }
    if (auto fault = fault_of_uses(gradients_, buckets, rules_.unused_gradients, sending_); fault && has_data) {
      throw sync_error(*std::move(fault));
    }
    if (copies() && (!has_data || rules_.unused_gradients == unused::zero_fill)) {
      zeros_.fill_unused(gradients_, ready);
    }
  }

  /// Of the gradients that count as zeros.
  std::uint64_t unused_digest() const { return zeros_.digest(); }

  /// After a step that was sent: see zero_filling::settle.
  template <host_backend Backend>
  std::span<const slot> settle_zeros(Backend& backend, const step_outcome& outcome, bool has_data) {
    return zeros_.settle(backend, gradients_, outcome, has_data);
  }

 private:
  bool copies() const { return sending_ && has_peers_; }

  gradient_table& gradients_;
  step_rules rules_;
  bool has_peers_;
  bool sending_ = false;
  bool learning_ = false;  // how often each gradient is used
  zero_filling zeros_;
};

}  // namespace gradweave::detail
