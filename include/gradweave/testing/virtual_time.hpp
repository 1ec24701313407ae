/// @file
/// Threads under a clock of their own: one of them runs at a time, which one follows from a seed, and time moves only
/// when all of them wait. So whole programs run deterministically, and hours of waiting cost nothing.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/testing/conformance.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::testing {

/// What threads call (`now`, `wait`, `wake`, `at`) may be called only while it is their turn, so no call takes a lock.
/// Threads are kept from run to run: to start them would take longer than most runs.
class virtual_time {
 public:
  virtual_time() = default;
  virtual_time(const virtual_time&) = delete;
  virtual_time& operator=(const virtual_time&) = delete;

  ~virtual_time() {
    over_ = true;
    for (std::size_t i = 0; i < threads_.size(); ++i) {
      hand_on(i);
      threads_[i].runs.join();
    }
  }

  /// Begins anew: the time is zero, no timer is set, and who runs when follows from `seed`.
  void reset(std::uint64_t seed) {
    random_ = random_source(seed);
    now_ = {};
    timers_.clear();
    standstill_ = nullptr;
    turns_ = 0;
  }

  deadline now() const { return now_; }

  /// Calls `action` when that time has come. Actions of one time are called in the order in which they were given.
  void at(deadline when, std::function<void()> action) {
    timers_.push_back({when, ++timers_made_, std::move(action)});
    std::push_heap(timers_.begin(), timers_.end(), later);
  }

  /// `action` is called when no thread would ever run again: those that have not ended wait for ever, and no timer is
  /// left. It has to wake one.
  void on_standstill(std::function<void()> action) { standstill_ = std::move(action); }

  /// Runs `body(0)` to `body(threads - 1)` to their ends. They must not throw.
  void run(int threads, const std::function<void(int)>& body) {
    body_ = &body;
    taking_part_ = static_cast<std::size_t>(threads);
    while (threads_.size() < taking_part_) {
      threads_.emplace_back();
      threads_.back().runs = std::thread([this, i = threads_.size() - 1] { work(i); });
    }
    for (std::size_t i = 0; i < taking_part_; ++i) {
      threads_[i].now = ready;
    }
    running_ = true;
    hand_on(next());
    std::unique_lock lock(mutex_);
    all_ended_.wait(lock, [&] { return turn_ == caller; });
    running_ = false;
  }

  /// The calling thread, which is `self`, sleeps until somebody wakes it, or that time has come. Outside of a run there
  /// are no others to wait for: time passes at once.
  void wait(int self, deadline until) {
    if (!running_) {
      wait_alone(self, until);
      return;
    }
    thread_state& own = threads_[static_cast<std::size_t>(self)];
    own.now = waiting;
    own.until = until;
    switch_from(self);
  }

  /// Lets others run first, if they can.
  void yield(int self) {
    if (running_) {
      switch_from(self);
    }
  }

  void wake(int which) {
    if (!running_) {
      woken_alone_ = which;
      return;
    }
    thread_state& each = threads_[static_cast<std::size_t>(which)];
    each.now = each.now == waiting ? ready : each.now;
  }

  /// How often a thread was chosen to run: a measure of a run that goes on without end.
  std::uint64_t turns() const { return turns_; }

 private:
  enum state { ready, waiting, ended };
  static constexpr std::size_t caller = SIZE_MAX;  // of run
  static constexpr std::size_t taken = SIZE_MAX - 1;

  struct thread_state {
    state now = ended;
    deadline until{};
    std::condition_variable turn_comes;
    std::thread runs;
  };
  struct timer {
    deadline when;
    std::uint64_t number;
    std::function<void()> action;
  };

  static bool later(const timer& a, const timer& b) { return a.when != b.when ? a.when > b.when : a.number > b.number; }

  void switch_from(int self) {
    const std::size_t chosen = next();
    if (chosen != static_cast<std::size_t>(self)) {
      hand_on(chosen);
      take_turn(static_cast<std::size_t>(self));
    }
  }

  void wait_alone(int self, deadline until) {
    for (woken_alone_ = -1; woken_alone_ != self && now_ < until;) {
      pass_time(until);
    }
  }

  void work(std::size_t self) {
    for (;;) {
      take_turn(self);
      if (over_) {
        return;
      }
      (*body_)(static_cast<int>(self));
      threads_[self].now = ended;
      hand_on(next());
    }
  }

  void hand_on(std::size_t to) {
    {
      const std::lock_guard lock(mutex_);
      turn_ = to;
    }
    (to == caller ? all_ended_ : threads_[to].turn_comes).notify_one();
  }

  void take_turn(std::size_t self) {
    std::unique_lock lock(mutex_);
    threads_[self].turn_comes.wait(lock, [&] { return turn_ == self; });
    // Taken: who has ended must not begin anew before run() says so.
    turn_ = taken;
  }

  /// Who runs next: any that is ready, else the first that becomes so as time goes on; caller once all have ended.
  std::size_t next() {
    ++turns_;
    for (;;) {
      std::size_t candidates = 0;
      bool all_ended = true;
      deadline earliest = deadline::max();
      for (const thread_state& each : threads_) {
        candidates += each.now == ready ? 1 : 0;
        all_ended = all_ended && each.now == ended;
        earliest = each.now == waiting ? std::min(earliest, each.until) : earliest;
      }
      if (candidates != 0) {
        return ready_one(candidates == 1 ? 0 : random_.below(candidates));
      }
      if (all_ended) {
        return caller;
      }
      pass_time(earliest);
    }
  }

  std::size_t ready_one(std::size_t skip) const {
    std::size_t i = 0;
    while (threads_[i].now != ready || skip-- != 0) {
      ++i;
    }
    return i;
  }

  /// To the next timer, or to the earliest deadline of a wait.
  void pass_time(deadline earliest) {
    if (!timers_.empty() && timers_.front().when <= earliest) {
      now_ = std::max(now_, timers_.front().when);
      while (!timers_.empty() && timers_.front().when <= now_) {
        std::pop_heap(timers_.begin(), timers_.end(), later);
        const timer due = std::move(timers_.back());
        timers_.pop_back();
        due.action();
      }
      return;
    }
    if (earliest == deadline::max()) {
      standstill_();
      return;
    }
    now_ = std::max(now_, earliest);
    for (thread_state& each : threads_) {
      each.now = each.now == waiting && each.until <= now_ ? ready : each.now;
    }
  }

  random_source random_{0};
  deadline now_{};
  std::vector<timer> timers_;  // a heap, the earliest first
  std::uint64_t timers_made_ = 0;
  std::function<void()> standstill_;
  std::uint64_t turns_ = 0;

  const std::function<void(int)>* body_ = nullptr;
  std::size_t taking_part_ = 0;
  bool running_ = false;
  int woken_alone_ = -1;  // outside of a run
  bool over_ = false;
  std::mutex mutex_;  // of turn_; what else there is belongs to whose turn it is
  std::size_t turn_ = taken;
  std::condition_variable all_ended_;
  std::deque<thread_state> threads_;  // those that exist stay where they are
};

}  // namespace gradweave::testing
