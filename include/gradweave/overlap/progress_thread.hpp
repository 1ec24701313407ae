/// @file
/// Overlap by a thread: each bucket travels as soon as it is complete, while the backward pass still runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include <gradweave/description.hpp>
#include <gradweave/overlap/concept.hpp>

namespace gradweave::overlap {

/// What: a thread of the lane's own runs the collectives. Models: overlap_policy. Semantics: a bucket is launched once
/// it and all earlier ones are complete. Cost: one thread, which sleeps while there is nothing to do. Threading:
/// `notify` from any thread, without a lock. Failure: the work keeps its own; nothing leaves the thread.
/// Example: the default.
struct progress_thread {
  friend bool operator==(const progress_thread&, const progress_thread&) = default;

  template <lane_work Work>
  class thread_lane {
   public:
    explicit thread_lane(Work& work) : work_(work), thread_([this] { run(); }) {}
    thread_lane(const thread_lane&) = delete;
    thread_lane& operator=(const thread_lane&) = delete;

    ~thread_lane() {
      stopping_.store(true, std::memory_order_relaxed);
      notify();
      thread_.join();
    }

    /// The release pairs with the thread's acquire: what the caller wrote before is seen by the work.
    void notify() noexcept {
      notified_.fetch_add(1, std::memory_order_release);
      notified_.notify_one();
    }

    /// Whether the work gets on without `drain`.
    static constexpr bool runs_by_itself() { return true; }

    void drain() {
      notify();
      for (;;) {
        const std::uint32_t turn = turns_.load(std::memory_order_acquire);
        if (work_.finished()) {
          return;
        }
        turns_.wait(turn, std::memory_order_acquire);
      }
    }

   private:
    void run() {
      std::uint32_t seen = 0;
      for (;;) {
        notified_.wait(seen, std::memory_order_acquire);
        seen = notified_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_relaxed)) {
          return;
        }
        while (work_.advance() == lane_status::pending) {
          work_.wait();
        }
        turns_.fetch_add(1, std::memory_order_release);
        turns_.notify_one();
      }
    }

    Work& work_;
    std::atomic<std::uint32_t> notified_{0};
    std::atomic<std::uint32_t> turns_{0};
    std::atomic<bool> stopping_{false};
    std::thread thread_;
  };

  template <lane_work Work>
  thread_lane<Work> make_lane(Work& work) const {
    return thread_lane<Work>(work);
  }

  void describe(description& sink) const { sink.add("name", "progress_thread"); }
};

static_assert(overlap_policy<progress_thread>);

}  // namespace gradweave::overlap
