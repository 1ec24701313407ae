/// @file
/// The lane of streams: a thread that enqueues what becomes complete, and watches over what is under way.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include <gradweave/description.hpp>
#include <gradweave/overlap/concept.hpp>

namespace gradweave::overlap {

/// What: a thread that calls `advance()` when it is notified, and every half millisecond while something is pending. Models:
/// overlap_policy; policies for streams take their lane from it. Semantics: `drain` returns once the work is finished, which on a
/// stream means that everything is enqueued. Cost: one thread, which sleeps while nothing is pending. Threading: `notify` from
/// any thread; it takes a lock that is held for some instructions. Failure: the work keeps its own; nothing leaves the thread.
/// Example: overlap::cuda_stream.
struct watching_thread {
  static constexpr std::chrono::microseconds period{500};

  friend bool operator==(const watching_thread&, const watching_thread&) = default;

  template <lane_work Work>
  class watching_lane {
   public:
    explicit watching_lane(Work& work) : work_(work), thread_([this] { run(); }) {}
    watching_lane(const watching_lane&) = delete;
    watching_lane& operator=(const watching_lane&) = delete;

    ~watching_lane() {
      {
        std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      changed_.notify_all();
      thread_.join();
    }

    void notify() noexcept {
      {
        std::lock_guard lock(mutex_);
        ++notified_;
      }
      changed_.notify_all();
    }

    static constexpr bool runs_by_itself() { return true; }

    void drain() {
      notify();
      std::unique_lock lock(mutex_);
      turned_.wait(lock, [this] { return work_.finished(); });
    }

   private:
    void run() {
      std::uint64_t seen = 0;
      std::unique_lock lock(mutex_);
      for (bool pending = false;;) {
        const auto woken = [&] { return stopping_ || notified_ != seen; };
        if (pending) {
          changed_.wait_for(lock, period, woken);
        } else {
          changed_.wait(lock, woken);
        }
        if (stopping_) {
          return;
        }
        seen = notified_;
        lock.unlock();
        pending = work_.advance() == lane_status::pending;
        lock.lock();
        turned_.notify_all();
      }
    }

    Work& work_;
    std::mutex mutex_;
    std::condition_variable changed_;  // for the thread
    std::condition_variable turned_;   // for who drains
    std::uint64_t notified_ = 0;
    bool stopping_ = false;
    std::thread thread_;  // last: it uses all of the above
  };

  template <lane_work Work>
  watching_lane<Work> make_lane(Work& work) const {
    return watching_lane<Work>(work);
  }

  void describe(description& sink) const { sink.add("name", "watching_thread"); }
};

static_assert(overlap_policy<watching_thread>);

}  // namespace gradweave::overlap
