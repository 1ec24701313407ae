/// @file
/// The conformance kit of overlap policies. docs/reference/overlap.md has what it checks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gradweave/overlap/concept.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gradweave::testing {

/// A step for a lane to drive: buckets that become complete, each of which takes a few turns, then the end. It notes
/// whether the lane keeps to what lane_work asks of it. What `advance` changes is read by the caller after `drain`
/// without a lock, so ThreadSanitizer sees a lane that does not publish it.
class lane_probe {
 public:
  explicit lane_probe(std::size_t buckets, int turns_a_bucket = 2)
      : gradients_(buckets), reduced_(buckets), complete_(buckets), turns_a_bucket_(turns_a_bucket) {}

  // ---- the caller's side, as a synchronizer uses it -----------------------------------------------------------------

  void begin_step() {
    std::lock_guard lock(mutex_);
    open_ = true;
    ++step_;
    for (std::atomic<bool>& each : complete_) {
      each.store(false, std::memory_order_relaxed);
    }
    next_ = 0;
    turns_ = 0;
    closing_.store(false, std::memory_order_relaxed);
    finished_.store(false, std::memory_order_relaxed);
  }

  /// From any thread. Notify the lane afterwards.
  void complete(std::size_t bucket) {
    gradients_[bucket] = step_;
    complete_[bucket].store(true, std::memory_order_release);
  }

  /// All buckets are complete: the step may end. Drain the lane afterwards.
  void close_step() { closing_.store(true, std::memory_order_release); }

  /// The step ends early, as it does after a failure.
  void fail_step() {
    std::lock_guard lock(mutex_);
    failed_ = true;
  }

  void end_step() {
    std::lock_guard lock(mutex_);
    open_ = false;
    failed_ = false;
  }

  /// What the lane has reduced, bucket by bucket: the number of the step.
  std::span<const std::uint64_t> reduced() const { return reduced_; }
  std::uint64_t step() const { return step_; }
  std::uint64_t advances() const { return advances_.load(std::memory_order_relaxed); }
  bool used_by_two_threads_at_once() const { return overlapped_.load(std::memory_order_relaxed); }

  // ---- the lane's side: lane_work -----------------------------------------------------------------------------------

  lane_status advance() noexcept {
    const exclusive use(*this);
    advances_.fetch_add(1, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    if (!open_) {
      return lane_status::idle;
    }
    while (!failed_ && next_ < complete_.size()) {
      if (!complete_[next_].load(std::memory_order_acquire)) {
        return lane_status::idle;
      }
      if (turns_++ < turns_a_bucket_) {
        return lane_status::pending;
      }
      reduced_[next_] = gradients_[next_];
      ++next_;
      turns_ = 0;
    }
    if (!failed_ && !closing_.load(std::memory_order_acquire)) {
      return lane_status::idle;
    }
    finished_.store(true, std::memory_order_release);
    return lane_status::finished;
  }

  void wait() noexcept {
    const exclusive use(*this);
    std::this_thread::yield();
  }

  bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }

 private:
  /// Notes where another thread is in advance() or wait() too.
  class exclusive {
   public:
    explicit exclusive(lane_probe& probe) : probe_(probe) {
      if (probe_.users_.fetch_add(1, std::memory_order_relaxed) != 0) {
        probe_.overlapped_.store(true, std::memory_order_relaxed);
      }
      std::this_thread::yield();  // make it likely to be seen
    }
    exclusive(const exclusive&) = delete;
    exclusive& operator=(const exclusive&) = delete;
    ~exclusive() { probe_.users_.fetch_sub(1, std::memory_order_relaxed); }

   private:
    lane_probe& probe_;
  };

  std::vector<std::uint64_t> gradients_;
  std::vector<std::uint64_t> reduced_;
  std::vector<std::atomic<bool>> complete_;
  int turns_a_bucket_;
  std::mutex mutex_;
  bool open_ = false;
  bool failed_ = false;
  std::uint64_t step_ = 0;
  std::size_t next_ = 0;
  int turns_ = 0;
  std::atomic<bool> closing_{false};
  std::atomic<bool> finished_{true};
  std::atomic<int> users_{0};
  std::atomic<bool> overlapped_{false};
  std::atomic<std::uint64_t> advances_{0};
};

static_assert(lane_work<lane_probe>);

struct overlap_conformance_options {
  std::uint64_t seed = 1;
  int steps = 30;
  int threads = 4;  ///< that complete buckets at once
  std::size_t buckets = 24;
};

namespace detail {

inline void check_step(conformance_recorder& recorder, const lane_probe& probe, const std::string& what) {
  recorder.check(probe.finished(), [&] { return what + ": drain() returned before the work was finished"; });
  bool all = true;
  for (const std::uint64_t step : probe.reduced()) {
    all = all && step == probe.step();
  }
  recorder.check(!probe.finished() || all,
                 [&] { return what + ": after drain() a bucket had not been reduced in this step"; });
  recorder.check(!probe.used_by_two_threads_at_once(),
                 [&] { return what + ": two threads were in advance() or wait() at once"; });
}

/// `options.threads` threads complete the buckets in a random order and notify.
template <lane Lane>
void complete_from_threads(lane_probe& probe, Lane& lane, random_source& random,
                           const overlap_conformance_options& options) {
  std::vector<std::vector<std::size_t>> shares(static_cast<std::size_t>(options.threads));
  for (std::size_t bucket = 0; bucket < options.buckets; ++bucket) {
    auto& share = shares[random.below(shares.size())];
    share.insert(share.begin() + static_cast<std::ptrdiff_t>(random.below(share.size() + 1)), bucket);
  }
  std::vector<std::thread> threads;
  for (const auto& share : shares) {
    threads.emplace_back([&probe, &lane, &share] {
      for (const std::size_t bucket : share) {
        probe.complete(bucket);
        lane.notify();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace detail

/// Drives lanes of `policy` through steps: buckets complete on one and on several threads, steps without a bucket,
/// steps that fail, calls of `notify` in between, lanes that never see a step, two lanes at once. Checks that one
/// thread at a time advances the work, that `drain` returns when the step is finished and no earlier, and that what the
/// lane did is then visible. A lane that hangs makes it hang: run it under a watchdog.
template <overlap_policy Policy>
conformance_report check_overlap(const Policy& policy, const overlap_conformance_options& options = {}) {
  conformance_recorder recorder;
  random_source random(options.seed);
  recorder.part("a lane without a step", [&] {
    lane_probe probe(1);
    [[maybe_unused]] auto lane = policy.make_lane(probe);
    recorder.check(probe.reduced()[0] == 0, "a lane must not reduce anything before a step begins");
  });
  recorder.part("steps", [&] {
    lane_probe probe(options.buckets);
    auto lane = policy.make_lane(probe);
    lane.notify();
    for (int step = 0; step < options.steps; ++step) {
      probe.begin_step();
      if (step % 2 == 0) {
        detail::complete_from_threads(probe, lane, random, options);
      } else {
        for (std::size_t bucket = options.buckets; bucket-- > 0;) {
          probe.complete(bucket);
          lane.notify();
        }
      }
      probe.close_step();
      lane.drain();
      detail::check_step(recorder, probe, "a step");
      probe.end_step();
      lane.notify();
    }
  });
  recorder.part("steps without a bucket", [&] {
    lane_probe probe(0);
    auto lane = policy.make_lane(probe);
    for (int step = 0; step < options.steps; ++step) {
      probe.begin_step();
      probe.close_step();
      lane.drain();
      detail::check_step(recorder, probe, "a step without a bucket");
      probe.end_step();
    }
  });
  recorder.part("a step that fails", [&] {
    lane_probe probe(3);
    auto lane = policy.make_lane(probe);
    probe.begin_step();
    probe.complete(0);
    lane.notify();
    probe.fail_step();
    lane.drain();
    recorder.check(probe.finished(), "a step that fails: drain() returned before the work was finished");
    probe.end_step();
  });
  recorder.part("two lanes", [&] {
    lane_probe first(1);
    lane_probe second(1);
    auto first_lane = policy.make_lane(first);
    auto second_lane = policy.make_lane(second);
    first.begin_step();
    second.begin_step();
    second.complete(0);
    second_lane.notify();
    second.close_step();
    second_lane.drain();
    detail::check_step(recorder, second, "two lanes, the second first");
    first.complete(0);
    first_lane.notify();
    first.close_step();
    first_lane.drain();
    detail::check_step(recorder, first, "two lanes");
    first.end_step();
    second.end_step();
  });
  return recorder.report();
}

}  // namespace gradweave::testing
