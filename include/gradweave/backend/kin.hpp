/// @file
/// What the backends that one rank has in one job know of each other: the job fails as a whole, so a failure in one group is
/// told in all that this rank is in.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/backend/groups.hpp>
#include <gradweave/error.hpp>

namespace gradweave::backend {

/// `Executor` has `tell(failure)`, from any thread, which waits for nobody. All members may be called from any thread.
template <class Executor>
class kin {
 public:
  /// `members` are the ranks of the whole job that `one` runs collectives among, in its order. First comes the job itself.
  void add(const std::shared_ptr<Executor>& one, std::vector<int> members) {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const relative& each) { return each.executor.expired(); });
    all_.push_back({one, std::move(members), std::exchange(has_groups_, true)});
  }

  /// The story of a failure in the group of `one`, as it is told there: once there are groups it says who is meant, in
  /// numbers of the whole job. All others of this rank are told.
  failure spread(const Executor& one, failure story) {
    relative own;
    const std::vector<living> others = look(one, own);
    if (others.empty() && !own.is_group) {
      return story;
    }
    const auto culprit = static_cast<std::size_t>(story.rank);
    const int job_rank = story.rank >= 0 && culprit < own.members.size() ? own.members[culprit] : -1;
    name_culprit(story, job_rank, own);
    for (const living& other : others) {
      failure retold = story;
      const auto place = std::find(other.members.begin(), other.members.end(), job_rank);
      retold.rank = place == other.members.end() ? -1 : static_cast<int>(place - other.members.begin());
      other.executor->tell(std::move(retold));
    }
    return story;
  }

 private:
  struct relative {
    std::weak_ptr<Executor> executor;
    std::vector<int> members;
    bool is_group = false;  // not the whole job
  };
  struct living {
    std::shared_ptr<Executor> executor;
    std::vector<int> members;
  };

  /// `one`, and the others that are left. They are told without the lock, since telling takes one of theirs.
  std::vector<living> look(const Executor& one, relative& own) {
    std::lock_guard lock(mutex_);
    std::vector<living> others;
    for (const relative& each : all_) {
      if (auto executor = each.executor.lock(); executor.get() == &one) {
        own = each;
      } else if (executor) {
        others.push_back({std::move(executor), each.members});
      }
    }
    return others;
  }

  /// A story that comes from another group says so already.
  static void name_culprit(failure& story, int job_rank, const relative& own) {
    const std::string who = "rank " + std::to_string(job_rank) + " of the job";
    if (job_rank >= 0 && story.detail.find(who) == std::string::npos) {
      story.detail =
          who + (own.is_group ? ", in the group of " + ranks_in_words(own.members) : "") + ": " + story.detail;
    }
  }

  std::mutex mutex_;
  std::vector<relative> all_;
  bool has_groups_ = false;
};

}  // namespace gradweave::backend
