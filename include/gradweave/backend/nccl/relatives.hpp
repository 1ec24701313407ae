/// @file
/// What the communicators that one rank has in one job know of each other: they are given up together, and their collectives
/// run on the device in one order.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/backend/nccl/communicator.hpp>
#include <gradweave/backend/nccl/comparison.hpp>
#include <gradweave/error.hpp>

namespace gradweave::detail {

/// All members may be called from any thread.
///
/// Two communicators whose collectives run in one order on one device and in another order on another may wait for each
/// other for ever. So a launch waits, on the device, for the one before, whichever communicator that was of: the device's
/// order is the host's. That the hosts have the same is for the program to see to; where collectives are compared, how many
/// launches of each communicator came before is compared with them.
class nccl_relatives {
 public:
  explicit nccl_relatives(int device) {
    const device_scope scope(device);
    scope.check();
    cudaEvent_t made = nullptr;
    check_runtime(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    last_.reset(made);
    ended_.reserve(turns_kept);
  }

  /// `id` is the same on all ranks of the communicator.
  void add(std::uint64_t id, const std::shared_ptr<nccl_communicator>& one) {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const relative& each) { return each.communicator.expired(); });
    all_.push_back({id, one, 0});
    if (is_flagged_) {
      one->flag();
    }
  }

  /// Nobody enters NCCL any more.
  void flag() {
    std::lock_guard lock(mutex_);
    is_flagged_ = true;
    for (const auto& each : living()) {
      each->flag();
    }
    passed_.notify_all();
  }

  /// All are flagged, then all aborted. From now on launches throw the story.
  void give_up(const failure& story) {
    flag();
    std::vector<std::shared_ptr<nccl_communicator>> aborted;
    {
      std::lock_guard lock(mutex_);
      story_ = story_ ? story_ : std::optional(story);
      aborted = living();
    }
    for (const auto& each : aborted) {
      each->abort();
    }
  }

  void throw_if_given_up() {
    std::lock_guard lock(mutex_);
    if (story_) {
      throw sync_error(*story_);
    }
  }

  /// One launch's place in the order, from its beginning to the end of the scope.
  class turn {
   public:
    turn(nccl_relatives& all, std::uint64_t id) : all_(all) {
      std::lock_guard lock(all_.mutex_);
      number_ = all_.turns_begun_++;
      for (relative& each : all_.all_) {
        if (each.id == id) {
          ++each.launches;
        } else if (before_count_ < before_.size() && !each.communicator.expired()) {
          before_[before_count_++] = {each.id, each.launches};
        }
      }
    }
    turn(const turn&) = delete;
    turn& operator=(const turn&) = delete;
    /// Where it ends before its turn has come, those that wait for it will not.
    ~turn() {
      std::lock_guard lock(all_.mutex_);
      all_.ended_.push_back(number_);
      for (auto next = all_.ended_.begin(); next != all_.ended_.end();) {
        next = std::find(all_.ended_.begin(), all_.ended_.end(), all_.turns_over_);
        if (next != all_.ended_.end()) {
          all_.ended_.erase(next);
          ++all_.turns_over_;
          next = all_.ended_.begin();
        }
      }
      all_.passed_.notify_all();
    }

    /// What other communicators have launched before.
    launches_before before() const { return before_; }

    /// Returns once all that came before have launched; `on` waits for them. Throws sync_error.
    void await(cudaStream_t on) const {
      std::unique_lock lock(all_.mutex_);
      all_.passed_.wait(lock, [&] { return all_.turns_over_ == number_; });
      if (all_.all_.size() > 1) {
        check_runtime(cudaStreamWaitEvent(on, all_.last_.get(), 0), "cudaStreamWaitEvent");
      }
    }

    /// What comes next waits for what is on the stream now. Throws sync_error.
    void mark(cudaStream_t on) const { check_runtime(cudaEventRecord(all_.last_.get(), on), "cudaEventRecord"); }

   private:
    nccl_relatives& all_;
    std::uint64_t number_ = 0;
    launches_before before_{};
    std::size_t before_count_ = 0;
  };

 private:
  static constexpr std::size_t turns_kept = 16;  // more than one needs a thread for each

  struct relative {
    std::uint64_t id = 0;
    std::weak_ptr<nccl_communicator> communicator;
    std::uint64_t launches = 0;
  };
  struct event_deleter {
    void operator()(cudaEvent_t event) const noexcept { static_cast<void>(cudaEventDestroy(event)); }
  };

  /// With the lock.
  std::vector<std::shared_ptr<nccl_communicator>> living() const {
    std::vector<std::shared_ptr<nccl_communicator>> found;
    for (const relative& each : all_) {
      if (auto one = each.communicator.lock()) {
        found.push_back(std::move(one));
      }
    }
    return found;
  }

  std::mutex mutex_;
  std::condition_variable passed_;
  std::vector<relative> all_;
  std::uint64_t turns_begun_ = 0;
  std::uint64_t turns_over_ = 0;
  std::vector<std::uint64_t> ended_;  // of those that are not over yet
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, event_deleter> last_;
  bool is_flagged_ = false;
  std::optional<failure> story_;
};

}  // namespace gradweave::detail
