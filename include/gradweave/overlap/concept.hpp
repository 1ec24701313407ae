/// @file
/// What an overlap policy is: it makes the lane, which decides when and on which thread collectives run.
/// docs/reference/overlap.md has the requirements.
#pragma once

#include <concepts>
#include <cstdint>

#include <gradweave/description.hpp>

namespace gradweave {

enum class lane_status : std::uint8_t {
  idle,      ///< nothing to do until another bucket becomes complete or the step ends
  pending,   ///< a collective is under way: call wait(), then advance() again
  finished,  ///< the step is over, well or not
};

/// What a lane drives. `advance()` does what can be done without blocking; `wait()` sleeps until it may get further: only
/// one thread at a time calls these. `finished()`, from any thread: the step is over. None of them throws.
template <class W>
concept lane_work = requires(W& work) {
  { work.advance() } noexcept -> std::same_as<lane_status>;
  { work.wait() } noexcept;
  { work.finished() } noexcept -> std::same_as<bool>;
};

/// The smallest lane_work: what the concepts below are checked with.
struct lane_work_archetype {
  lane_status advance() noexcept { return lane_status::finished; }
  void wait() noexcept {}
  bool finished() noexcept { return true; }
};

/// Atom: `notify()`: a bucket became complete. Called from any thread; it never blocks.
template <class L>
concept lane_can_notify = requires(L& lane) {
  { lane.notify() } noexcept;
};

/// Atom: `drain()`: called at the end of a step; returns once the work is finished.
template <class L>
concept lane_can_drain = requires(L& lane) { lane.drain(); };

template <class L>
concept lane = lane_can_notify<L> && lane_can_drain<L>;

/// Optional: `runs_by_itself()`, true where a lane gets on with its work without `drain`, on a thread of its own. Who waits
/// for a part of a step then waits for no more than that.
template <lane L>
constexpr bool runs_by_itself(const L& lane) {
  if constexpr (requires {
                  { lane.runs_by_itself() } -> std::same_as<bool>;
                }) {
    return lane.runs_by_itself();
  } else {
    return false;
  }
}

/// Atom: `make_lane(work)` returns a lane that drives `work` until it is destroyed. Declare the return type: it is asked
/// for before the work is complete, and `auto` would look into the function for it.
template <class O>
concept overlap_makes_lane = requires(const O& policy, lane_work_archetype& work) {
  { policy.make_lane(work) } -> lane;
};

template <class O>
concept overlap_policy = policy_value<O> && overlap_makes_lane<O>;

/// Says in one sentence which requirement of `overlap_policy` O misses. Compiles for an overlap policy.
template <class O>
consteval bool explain_overlap() {
  static_assert(std::copyable<O>, "overlap: the policy must be copyable");
  static_assert(std::equality_comparable<O>, "overlap: the policy must have ==");
  static_assert(describes_itself<O>, "overlap: describe(description&) must exist and be const");
  static_assert(overlap_makes_lane<O>,
                "overlap: make_lane(work) must be const and return a lane: notify() noexcept, drain()");
  return overlap_policy<O>;
}

}  // namespace gradweave
