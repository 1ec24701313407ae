/// @file
/// Times and bytes of the present step, bucket by bucket, added to the totals when it ends.
///
/// It reads the clock five times a bucket and some times a step, and allocates nothing but for a new plan.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <gradweave/diagnostics/event.hpp>
#include <gradweave/diagnostics/recorder.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/synchronizer/rank_watch.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// `ready` may be called from any thread. Everything else is called by the lane or by the caller, one at a time.
class step_meter {
 public:
  using clock = std::chrono::steady_clock;

  clock::time_point made_at() const { return made_at_; }
  explicit step_meter(int ranks) : watch_(static_cast<std::size_t>(ranks)) {}

  /// What is measured is recorded too, from now on. Null: it is not.
  void record_to(recorder* records) { recorder_ = records; }

  /// For a plan of that many buckets.
  void reserve(std::size_t buckets) {
    buckets_ = buckets;
    present_.buckets.reserve(buckets);
    last_.buckets.reserve(buckets);
  }

  /// Ranks are ready for steps at about the same time: the first one is measured from here.
  void set_up_ended() { last_end_ = pass_began_ = clock::now(); }

  void begin(std::uint64_t bytes_sent) {
    bytes_sent_before_ = bytes_sent;
    ended_before_ = last_end_;
    launched_ = false;
    in_bucket_ = false;
    turn_ = 0;
    exposed_turn_ = 0;
    present_.buckets.assign(buckets_, {});
    began_ = clock::now();
    place(-1);
  }

  std::chrono::nanoseconds since_begin() const { return clock::now() - began_; }

  // ---- the caller's side --------------------------------------------------------------------------------------------

  /// A gradient is; the first of a pass counts.
  void ready() {
    if (first_ready_.load(std::memory_order_relaxed) == 0) {
      std::int64_t none = 0;
      first_ready_.compare_exchange_strong(none, clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    }
  }

  /// Of a step, or of an accumulation, whose times count in the step that follows.
  void backward_ended() {
    const auto now = clock::now();
    const auto first = first_ready_.exchange(0, std::memory_order_relaxed);
    const auto divide = first == 0 ? now : clock::time_point(clock::duration(first));
    present_.whole.forward_time += divide - pass_began_;
    present_.whole.backward_time += now - divide;
    pass_began_ = now;
  }

  /// What this rank tells the others of a step whose backward pass has ended.
  void write(step_record& own) const {
    own.ended_before_ns = static_cast<std::uint64_t>(ended_before_.time_since_epoch().count());
    own.computed_ns = static_cast<std::uint64_t>((pass_began_ - ended_before_).count());
    own.backward_us = to_record_us(present_.whole.backward_time);
  }

  /// The caller has waited since `from`.
  void waited(clock::time_point from) {
    const auto to = clock::now();
    auto& rows = present_.buckets;
    present_.whole.exposed_time += to - from;
    record(event_kind::exposed, from, to);
    // A turn lasts from the end of the one before to the bucket's own end. Turns that have ended are not looked at again.
    for (; exposed_turn_ < rows.size(); ++exposed_turn_) {
      const bool ended = exposed_turn_ < turn_;
      const auto turn_began = exposed_turn_ == 0 ? from : began_ + rows[exposed_turn_ - 1].finished;
      const auto turn_ended = ended ? began_ + rows[exposed_turn_].finished : to;
      rows[exposed_turn_].exposed +=
          std::max(std::chrono::nanoseconds(0), std::min(to, turn_ended) - std::max(from, turn_began));
      if (!ended || turn_ended > to) {
        break;
      }
    }
  }

  /// The step has ended well, with `records` of all ranks if anything travelled.
  void end(std::uint64_t bytes_sent, std::size_t bytes_raw, std::uint64_t non_finite,
           std::span<const step_record> records) {
    sync_statistics& whole = present_.whole;
    pass_began_ = clock::now();
    whole.steps = 1;
    whole.step_time = pass_began_ - began_;
    if (launched_) {
      whole.communication_time = last_end_ - first_launch_;
      present_.slowest = watch_.add(records);
      if (recorder_ != nullptr) {
        recorder_->step_ended(static_cast<std::int64_t>(records[0].ended_before_ns -
                                                        static_cast<std::uint64_t>(event_time(ended_before_))));
      }
    } else {
      whole.exposed_time = {};  // there is nobody to wait for
      present_.buckets.clear();
    }
    whole.bytes_raw = bytes_raw;
    whole.bytes_on_wire = bytes_sent - bytes_sent_before_;
    whole.non_finite = non_finite;
    totals_.add(whole);
    std::swap(present_, last_);
    present_.whole = {};
  }

  const sync_statistics& totals() const { return totals_; }
  const step_statistics& last_step() const { return last_; }
  std::span<const rank_statistics> ranks() const { return watch_.rows(); }

  // ---- the lane's side ----------------------------------------------------------------------------------------------

  /// It is the next bucket's turn.
  void bucket_begins(std::uint64_t bytes_sent) {
    in_bucket_ = true;
    bucket_sent_before_ = bytes_sent;
    place(static_cast<std::int32_t>(turn_));
    worked_since_ = clock::now();
  }

  /// A collective is launched: one of the bucket whose turn it is, or another.
  void launch() {
    const auto now = clock::now();
    if (!std::exchange(launched_, true)) {
      first_launch_ = now;
    }
    if (in_bucket_ && row().launched.count() == 0) {
      row().launched = now - began_;
      present_.whole.encode_time += now - worked_since_;
      record(event_kind::encode, worked_since_, now);
    } else if (in_bucket_) {
      present_.whole.decode_time += now - worked_since_;
      record(event_kind::decode, worked_since_, now);
    }
  }

  /// It is complete.
  void arrive() { worked_since_ = clock::now(); }

  /// The bucket's gradients are averages. It became ready at `ready`, or so late that the time is not known yet.
  void bucket_ends(clock::time_point ready, std::uint64_t bytes_raw, std::uint64_t bytes_sent) {
    const auto now = clock::now();
    bucket_statistics& ended = row();
    present_.whole.decode_time += now - worked_since_;
    ended.ready = ready < began_ ? ended.launched : ready - began_;
    record(event_kind::decode, worked_since_, now);
    record(event_kind::wait, began_ + ended.ready, began_ + ended.launched);
    ended.finished = now - began_;
    ended.bytes_raw = bytes_raw;
    ended.bytes_on_wire = bytes_sent - bucket_sent_before_;
    in_bucket_ = false;
    ++turn_;
    place(-1);
  }

  /// Since the step before has ended.
  std::chrono::nanoseconds since_last_end() const { return clock::now() - ended_before_; }

  void last_collective_ended() { last_end_ = clock::now(); }

 private:
  clock::time_point made_at_ = clock::now();
  bucket_statistics& row() { return present_.buckets[turn_]; }

  void place(std::int32_t bucket) {
    if (recorder_ != nullptr) [[unlikely]] {
      recorder_->place(totals_.steps, bucket);
    }
  }
  void record(event_kind kind, clock::time_point begin, clock::time_point end) {
    if (recorder_ != nullptr) [[unlikely]] {
      recorder_->add(kind, begin, end);
    }
  }

  recorder* recorder_ = nullptr;
  rank_watch watch_;
  sync_statistics totals_;
  step_statistics last_;
  std::size_t buckets_ = 0;
  clock::time_point last_end_{};    // of a step's last collective: at about the same time on all ranks
  clock::time_point pass_began_{};  // where the backward pass before has ended, or the step
  std::atomic<std::int64_t> first_ready_{0};

  // The present step.
  step_statistics present_;
  bool launched_ = false;
  bool in_bucket_ = false;
  std::size_t turn_ = 0;          // buckets that have ended
  std::size_t exposed_turn_ = 0;  // the first whose exposed part may grow
  std::uint64_t bytes_sent_before_ = 0;
  std::uint64_t bucket_sent_before_ = 0;
  clock::time_point ended_before_{};  // last_end_ of the step before: the lane may write that one
  clock::time_point began_{};
  clock::time_point first_launch_{};
  clock::time_point worked_since_{};
};

}  // namespace gradweave::detail
