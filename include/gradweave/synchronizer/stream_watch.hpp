/// @file
/// The watch over steps that are enqueued and not known to be over: on the host all ranks exchange records, which shows who
/// fails, leaves or does not come; on the device an event and the verdict show that the stream has got through.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/error.hpp>
#include <gradweave/synchronizer/rank_table.hpp>
#include <gradweave/synchronizer/step_record.hpp>

namespace gradweave::detail {

/// Not thread-safe. What it refers to outlives it. After it has thrown it is not asked again.
template <stream_backend Backend, stream_device Device>
class stream_watch {
 public:
  using clock = std::chrono::steady_clock;

  /// How far the host may be ahead of the device, in steps.
  static constexpr std::size_t steps_max = 2;

  stream_watch(Backend& backend, const Device& device, std::chrono::milliseconds deadline)
      : backend_(backend),
        device_(device),
        deadline_(deadline),
        records_(backend.rank(), backend.size()),
        pinned_(device.allocate_pinned(steps_max * sizeof(step_verdict))),
        ends_{device.make_event(), device.make_event()} {}

  std::size_t under_way() const { return count_; }

  /// Where the verdict of the next step has to be copied to, and what has to be recorded behind that.
  std::byte* verdict() { return pinned_.data() + place(count_) * sizeof(step_verdict); }
  typename Device::event& end() { return ends_[place(count_)]; }

  /// What was recorded last.
  const typename Device::event& last_end() const { return ends_[(first_ + steps_max + count_ - 1) % steps_max]; }

  /// From now on the step is watched. Without a verdict, it is no step but other work on all ranks' streams.
  void add(const step_record& own, bool has_verdict = true) {
    require(count_ < steps_max, "stream_watch: too many steps are under way");
    added_[place(count_)] = {own, has_verdict};
    ++count_;
  }

  /// Looks after the oldest step without waiting, and calls `over(own record, verdict)` for each that is. Throws sync_error,
  /// with the step, once one can't end.
  template <class Over>
  void advance(Over&& over) {
    while (count_ != 0) {
      const added_step& oldest = added_[first_];
      try {
        if (!advance_oldest(oldest)) {
          return;
        }
        const step_verdict verdict = oldest.has_verdict ? read_verdict() : step_verdict{1, 1, 0};
        over(oldest.own, verdict);
      } catch (const sync_error& error) {
        failure cause = error.cause();
        if (cause.step < 0 && oldest.has_verdict) {
          cause.step = static_cast<std::int64_t>(oldest.own.step);
        }
        throw sync_error(std::move(cause));
      }
      first_ = (first_ + 1) % steps_max;
      --count_;
      phase_ = phase::none;
    }
  }

 private:
  enum class phase : std::uint8_t { none, enqueued, device, over };
  struct added_step {
    step_record own;
    bool has_verdict = true;
  };

  std::size_t place(std::size_t after) const { return (first_ + after) % steps_max; }
  bool is_late() const { return clock::now() - since_ > deadline_; }

  /// All ranks exchange records once each has enqueued the step, and once more when its device has got through: nobody leaves
  /// before, so in between who is gone is lost.
  bool advance_oldest(const added_step& oldest) {
    backend_.check();
    if (phase_ == phase::none) {
      exchange(oldest.own, phase::enqueued);
    }
    if (phase_ == phase::enqueued) {
      if (!is_exchanged()) {
        return false;
      }
      outcome_of(records_.values());  // throws where ranks differ, before anybody looks at the device
      begin(phase::device);
    }
    if (phase_ == phase::device) {
      if (!device_.is_reached(ends_[first_])) {
        check_others();
        return false;
      }
      exchange(oldest.own, phase::over);
    }
    return is_exchanged();
  }

  void exchange(const step_record& own, phase next) {
    backend_.control().start(records_.request(own));
    begin(next);
  }

  bool is_exchanged() {
    auto& control = backend_.control();
    if (control.poll()) {
      return true;
    }
    if (is_late()) {
      control.wait();  // whose own deadline names the rank that is missing
    }
    return false;
  }

  void check_others() {
    if constexpr (backend_can_check<control_of<Backend>>) {
      backend_.control().check();
    }
    if (is_late()) {
      throw sync_error({errc::timed_out,
                        backend_.rank(),
                        -1,
                        -1,
                        {},
                        "all ranks have enqueued the step, and this rank's device has not got through it within " +
                            std::to_string(deadline_.count()) + " ms"});
    }
  }

  step_verdict read_verdict() const {
    step_verdict verdict;
    std::memcpy(&verdict, pinned_.data() + first_ * sizeof verdict, sizeof verdict);
    if (verdict.is_valid == 0) {
      throw sync_error(
          {errc::collective_mismatch,
           backend_.rank(),
           -1,
           -1,
           {},
           "the ranks' records differ on the device and not on the hosts: the device's collectives went wrong"});
    }
    return verdict;
  }

  void begin(phase next) {
    phase_ = next;
    since_ = clock::now();
  }

  using pinned_type = decltype(std::declval<const Device&>().allocate_pinned(0));

  Backend& backend_;
  const Device& device_;
  std::chrono::milliseconds deadline_;
  rank_table<step_record> records_;
  mutable pinned_type pinned_;
  std::array<typename Device::event, steps_max> ends_;
  std::array<added_step, steps_max> added_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  phase phase_ = phase::none;  // of the oldest
  clock::time_point since_{};
};

}  // namespace gradweave::detail
