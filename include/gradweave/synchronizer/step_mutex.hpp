/// @file
/// The mutex that guards a step. What runs under it can be the trainer's: a function given to `on_reduced`, or a hook. Were
/// that to ask for the synchronizer, it would wait for itself for ever; here it is told so.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include <gradweave/assert.hpp>

namespace gradweave::detail {

/// Lockable (for std::lock_guard).
class step_mutex {
 public:
  /// Throws contract_violation where this thread holds it.
  void lock() {
    require_not_held();
    mutex_.lock();
    holder_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  }

  void unlock() noexcept {
    holder_.store({}, std::memory_order_relaxed);
    mutex_.unlock();
  }

  /// The same without locking it: for what waits for those that do. A thread sees its own writes, whatever their order.
  void require_not_held() const {
    require(holder_.load(std::memory_order_relaxed) != std::this_thread::get_id(),
            "a function given to on_reduced, or a hook, asks for its own synchronizer, which waits for that function; "
            "do it after the step");
  }

 private:
  std::mutex mutex_;
  std::atomic<std::thread::id> holder_{};
};

}  // namespace gradweave::detail
