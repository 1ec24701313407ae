/// @file
/// MPI itself as the backends of one job share it: who initializes and ends it, whose turn it is to call it, and what has to
/// outlive a backend.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <mpi.h>

#include <gradweave/assert.hpp>
#include <gradweave/backend/mpi/calls.hpp>

namespace gradweave::backend::mpi {

/// Whether MPI may be called: it has begun, and has not ended.
inline bool is_alive() {
  int begun = 0;
  int ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  return begun != 0 && ended == 0;
}

/// Holds MPI, or borrows it from the program where that has initialized it. Ended with the last backend and arena of its
/// job, on whatever thread that is: let it be the one that made the first.
class library {
 public:
  explicit library(bool only_caller) {
    int ended = 0;
    MPI_Finalized(&ended);
    require(ended == 0, "mpi: MPI has ended, and can't begin anew in this process; initialize it in main");
    int begun = 0;
    MPI_Initialized(&begun);
    is_ours_ = begun == 0;
    int provided = MPI_THREAD_SINGLE;
    if (is_ours_) {
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
    } else {
      check(MPI_Query_thread(&provided), "MPI_Query_thread");
    }
    require_thread_level(provided, only_caller || is_ours_);
  }
  library(const library&) = delete;
  library& operator=(const library&) = delete;

  ~library() {
    if (is_alive()) {
      // For what others send as they end; some MPIs complain of messages that nobody took.
      for (int rest = 100; sweep(), !ending_.empty() && is_ours_ && !has_failed_ && rest != 0; --rest) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      // Where something failed MPI_Finalize, which has no deadline, might wait for a rank that never comes; and what was begun
      // and never completed might still be under way. The launcher ends a job of which a process leaves without it.
      if (is_ours_ && !has_failed_) {
        MPI_Finalize();
      }
    }
  }

  /// Held by who calls MPI, or looks at what other threads of this rank do with it. So nobody calls from two threads at once.
  std::mutex& turn() { return turn_; }

  bool is_ours() const { return is_ours_; }

  /// Some backend failed. With the turn.
  void fail() { has_failed_ = true; }

  /// `is_over()` is called from time to time until it returns true: what ends once other ranks have got that far. With the
  /// turn.
  void end_later(std::function<bool()> is_over) {
    sweep();
    ending_.push_back(std::move(is_over));
  }

 private:
  void sweep() {
    std::erase_if(ending_, [](const std::function<bool()>& is_over) { return is_over(); });
  }

  bool is_ours_ = false;
  bool has_failed_ = false;
  std::mutex turn_;
  std::vector<std::function<bool()>> ending_;
};

/// Leaves `thing` in memory to the end of the process: MPI may still write into it. (Sanitizers are told by this name.)
template <class Thing>
void keep_for_ever(Thing&& thing) {
  [[maybe_unused]] const auto* kept = new std::decay_t<Thing>(std::forward<Thing>(thing));
}

}  // namespace gradweave::backend::mpi
