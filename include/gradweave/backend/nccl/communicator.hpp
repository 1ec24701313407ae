/// @file
/// One communicator of NCCL's and the rules of using it: nobody waits inside of NCCL, one thread is in it at a time and
/// none during an abort, what was asked for has begun before the next call, and it is finalized before it is destroyed.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/error.hpp>

namespace gradweave::detail {

/// NCCL's settings of a communicator. A template, so that a member which a newer header has is set where there is one.
template <class Config>
Config communicator_config() {
  Config config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if constexpr (requires { config.commName; }) {
    config.commName = "gradweave";  // what NCCL's own log calls it
  }
  return config;
}

/// All members may be called from any thread, but begin_set_up and is_set_up from the one that sets it up.
class nccl_communicator {
 public:
  using clock = std::chrono::steady_clock;

  /// `timeout` bounds how long the host waits for NCCL to take up what it was asked for.
  nccl_communicator(int device, std::chrono::milliseconds timeout) : device_(device), timeout_(timeout) {}
  nccl_communicator(const nccl_communicator&) = delete;
  nccl_communicator& operator=(const nccl_communicator&) = delete;

  /// Where it works still it is finalized, which waits for its collectives; otherwise aborted.
  ~nccl_communicator() {
    if (handle_ != nullptr) {
      const device_scope scope(device_);
      if (is_ready_ && !is_flagged_ && !has_failed_ && is_finalized()) {
        static_cast<void>(ncclCommDestroy(handle_));
      } else {
        static_cast<void>(ncclCommAbort(handle_));
      }
    }
  }

  int device() const { return device_; }

  /// Asks for a communicator of these ranks. Throws sync_error.
  void begin_set_up(const ncclUniqueId& id, int size, int rank) {
    std::lock_guard lock(mutex_);
    const device_scope scope(device_);
    scope.check();
    rank_ = rank;
    ncclConfig_t config = communicator_config<ncclConfig_t>();
    if (const ncclResult_t code = ncclCommInitRankConfig(&handle_, size, id, rank, &config); is_nccl_error(code)) {
      fail("ncclCommInitRankConfig", code);
    }
  }

  /// Whether all ranks are there. Asks for at most `longest`. Throws sync_error.
  bool is_set_up(std::chrono::milliseconds longest) {
    const clock::time_point until = clock::now() + longest;
    while (!is_ready_) {
      {
        std::lock_guard lock(mutex_);
        throw_if_flagged();
        const ncclResult_t code = state();
        if (is_nccl_error(code)) {
          fail("ncclCommInitRankConfig", code);
        }
        is_ready_ = code == ncclSuccess;
      }
      if (!is_ready_ && clock::now() > until) {
        return false;
      }
      std::this_thread::yield();
    }
    return true;
  }

  /// Calls `body(ncclComm_t)`, which returns a result of NCCL's, alone in NCCL and on the communicator's device, and returns
  /// once NCCL has taken that up: on streams it is in its place then. Throws sync_error.
  template <class Body>
  void call(const char* what, Body&& body) {
    std::lock_guard lock(mutex_);
    throw_if_flagged();
    const device_scope scope(device_);
    scope.check();
    ncclResult_t code = body(handle_);
    const clock::time_point until = clock::now() + timeout_;
    while (code == ncclInProgress) {
      throw_if_flagged();
      if (clock::now() > until) {
        throw sync_error({errc::timed_out,
                          rank_,
                          -1,
                          -1,
                          {},
                          std::string(what) + ": NCCL has not begun with it for " + std::to_string(timeout_.count()) +
                              " ms; another rank is late, or can't be reached"});
      }
      std::this_thread::yield();
      code = state();
    }
    if (code != ncclSuccess) {
      fail(what, code);
    }
  }

  /// Throws sync_error for what has failed since. Never waits: who is inside looks for himself.
  void check() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock) {
      return;
    }
    throw_if_flagged();
    if (const ncclResult_t code = state(); is_nccl_error(code)) {
      fail("NCCL, in a collective that was under way", code);
    }
  }

  /// Who is in NCCL leaves it, and nobody enters any more. All communicators of a rank are flagged before one is aborted.
  void flag() { is_flagged_ = true; }
  bool is_flagged() const { return is_flagged_; }

  /// Kernels leave their streams. Flag it first. Waits for who is inside, as long as for anything.
  void abort() {
    const clock::time_point until = clock::now() + timeout_;
    std::unique_lock lock(mutex_, std::try_to_lock);
    while (!lock) {
      if (clock::now() > until) {
        return;  // somebody hangs in NCCL: an abort beside it might free what it works on
      }
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      static_cast<void>(lock.try_lock());
    }
    if (ncclComm_t const handle = std::exchange(handle_, nullptr); handle != nullptr) {
      const device_scope scope(device_);
      static_cast<void>(ncclCommAbort(handle));
    }
  }

 private:
  /// What NCCL says of what it was asked for last, or of a failure since.
  ncclResult_t state() const {
    ncclResult_t code = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(handle_, &code);
    return asked == ncclSuccess ? code : asked;
  }

  bool is_finalized() {
    ncclResult_t code = ncclCommFinalize(handle_);
    for (const auto until = clock::now() + timeout_; code == ncclInProgress && clock::now() < until;) {
      std::this_thread::yield();
      code = state();
    }
    return code == ncclSuccess;
  }

  void throw_if_flagged() const {
    if (is_flagged_ || handle_ == nullptr) {
      throw sync_error({errc::aborted, rank_, -1, -1, {}, "the communicator was given up"});
    }
  }

  [[noreturn]] void fail(const char* what, ncclResult_t code) {
    has_failed_ = has_failed_ || is_fatal(code);
    throw sync_error(nccl_failure(what, code, handle_, rank_));
  }

  int device_;
  std::chrono::milliseconds timeout_;
  int rank_ = -1;
  std::mutex mutex_;  // held by who is in NCCL
  ncclComm_t handle_ = nullptr;
  bool is_ready_ = false;
  bool has_failed_ = false;
  std::atomic<bool> is_flagged_{false};
};

}  // namespace gradweave::detail
