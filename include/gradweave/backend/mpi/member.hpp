/// @file
/// One rank of a job over MPI: enters collectives, waits with a deadline, and tells and hears of failures.
#pragma once

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <mpi.h>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/backend/mpi/control.hpp>
#include <gradweave/backend/mpi/entry.hpp>
#include <gradweave/backend/mpi/library.hpp>
#include <gradweave/backend/mpi/memory.hpp>
#include <gradweave/backend/mpi/payload.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::backend::mpi {

/// What a backend over MPI may be told. All but `only_caller` has to be the same on all ranks.
struct options {
  /// How long a rank waits without any progress for others to enter a collective before it gives the job up; half as long
  /// again for payload. Longer than the longest pause that one rank makes and others do not: an evaluation, a checkpoint.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// How much one call of MPI's moves from or to a rank, at most; 0: 512 KiB for each rank, and no more than 32 MiB. Smaller
  /// chunks stay in the cache, larger ones take fewer rounds.
  std::size_t chunk_bytes = 0;
  /// The greatest count or position, in bytes, that MPI is told of. Lower than it need be only in tests.
  std::size_t count_max = INT_MAX;
  /// The program itself, and other libraries, do not call MPI as long as a backend lives: then MPI_THREAD_SERIALIZED is enough.
  bool only_caller = false;

  /// What that comes to.
  std::size_t chunk_bytes_of(int size) const {
    const std::size_t automatic =
        std::min(static_cast<std::size_t>(size) * (std::size_t{512} << 10), std::size_t{32} << 20);
    return std::min(chunk_bytes == 0 ? automatic : chunk_bytes, count_max);
  }

  friend bool operator==(const options&, const options&) = default;
};

/// What MPI works on and with for one backend. Where something is under way that never ends it stays in memory for ever.
struct channel {
  channel(MPI_Comm data_, MPI_Comm control_, const options& given, std::shared_ptr<arena_list> arenas)
      : data(data_),
        messages(control_),
        rank(rank_in(data_)),
        size(size_of(data_)),
        ear(control_, rank, size),
        entrance(data_, rank, size, given.chunk_bytes_of(size)),
        load(data_, rank, size, given.chunk_bytes_of(size), given.count_max, std::move(arenas)) {}

  MPI_Comm data;      // collectives
  MPI_Comm messages;  // between two ranks, and votes
  int rank;
  int size;
  control ear;
  entry entrance;
  payload load;
  int vote = 0;
  MPI_Request voting = MPI_REQUEST_NULL;
};

/// May be called from several threads. It takes the library's turn for itself.
class member {
 public:
  member(std::shared_ptr<library> of, MPI_Comm data, MPI_Comm messages, const options& given)
      : library_(std::move(of)), options_(given), arenas_(std::make_shared<arena_list>()) {
    const std::lock_guard turn(library_->turn());
    channel_ = std::make_shared<channel>(data, messages, given, arenas_);
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;

  ~member() {
    if (is_alive()) {
      leave();
    }
    if (channel_) {
      keep_for_ever(std::move(channel_));
    }
  }

  int rank() const { return channel_->rank; }
  int size() const { return channel_->size; }

  arena allocate_arena(std::size_t bytes) { return {library_, arenas_, bytes}; }

  void start(const collective_request& request) {
    const std::lock_guard turn(library_->turn());
    require(!is_open_ || channel_->ear.has_failed(), "mpi: the collective before is not complete");
    request_ = request;
    is_open_ = true;
    has_entered_ = false;
    ++sequence_;
    since_ = std::chrono::steady_clock::now();
    channel_->ear.listen(since_);
    throw_if_over();
    channel_->entrance.begin(request_, sequence_);
  }

  bool poll() {
    const std::lock_guard turn(library_->turn());
    channel_->ear.listen(std::chrono::steady_clock::now());
    throw_if_over();
    if (!is_open_) {
      return true;
    }
    if (!has_entered_) {
      if (!channel_->entrance.advance()) {
        return false;
      }
      has_entered_ = true;
      since_ = std::chrono::steady_clock::now();
      channel_->load.begin(request_, channel_->entrance.largest_piece());
    }
    if (!channel_->load.advance()) {
      return false;
    }
    is_open_ = false;
    completed_ = sequence_;
    return true;
  }

  /// MPI has no way to sleep until something comes. Who waits for others to enter looks again after a sixteenth of what it has
  /// waited, a quarter of a millisecond at most; as payload moves only while somebody looks, it is looked after without a
  /// pause, but for other threads, until a rank must have stopped.
  void wait() {
    const auto now = std::chrono::steady_clock::now();
    clock::duration waited{};
    bool has_entered = false;
    {
      const std::lock_guard turn(library_->turn());
      if (const std::uint64_t steps = channel_->load.steps(); steps != steps_) {
        steps_ = steps;
        since_ = now;
      }
      waited = now - since_;
      has_entered = has_entered_;
      if (waited >= (has_entered ? options_.timeout + options_.timeout / 2 : options_.timeout)) {
        channel_->ear.listen(now);
        throw_if_over();
        throw sync_error(timeout_failure());
      }
    }
    const auto patience = has_entered ? std::chrono::milliseconds(50) : std::chrono::milliseconds(0);
    if (const auto idle = waited - patience; idle < std::chrono::microseconds(100)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::min<clock::duration>(idle / 16, std::chrono::microseconds(250)));
    }
  }

  /// Ends the job on every rank. Returns the cause that all ranks settled on.
  failure abort(failure cause) {
    const failure own = tell(std::move(cause));
    clock::time_point until{};  // for payload, once all is settled
    try {
      for (;;) {
        {
          const std::lock_guard turn(library_->turn());
          const auto now = std::chrono::steady_clock::now();
          control& ear = channel_->ear;
          ear.listen(now);
          // All have entered what is under way, and get it done while they settle: then nothing writes into gradients later.
          const bool quiet = channel_->load.is_quiet();
          until = ear.is_settled() && until == clock::time_point{} ? now + settlement::round_time : until;
          if (ear.is_settled() && (quiet || now >= until)) {
            return ear.cause();
          }
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    } catch (const sync_error&) {  // of MPI itself: nobody can be heard any more
      return own;
    }
  }

  /// The same without waiting for the others. Returns the first cause that is known here.
  failure tell(failure cause) {
    const std::lock_guard turn(library_->turn());
    const auto now = std::chrono::steady_clock::now();
    cause.collectives_completed = completed_;
    library_->fail();
    channel_->ear.begin(std::move(cause), now);
    try {
      channel_->ear.listen(now);
    } catch (const sync_error&) {  // its cause is known already
    }
    return channel_->ear.cause();
  }

  /// Whether all ranks call this with true. Each calls it at the same place, once; who gives false does not wait. Throws
  /// sync_error where the time is over. Failures that are told meanwhile are not heeded: another rank may go on by this.
  bool all_agree(bool own) {
    {
      const std::lock_guard turn(library_->turn());
      channel_->vote = own ? 1 : 0;
      check(MPI_Iallreduce(MPI_IN_PLACE, &channel_->vote, 1, MPI_INT, MPI_MIN, channel_->messages, &channel_->voting),
            "MPI_Iallreduce");
    }
    const auto until = std::chrono::steady_clock::now() + options_.timeout;
    for (int done = 0; own;) {
      {
        const std::lock_guard turn(library_->turn());
        check(MPI_Test(&channel_->voting, &done, MPI_STATUS_IGNORE), "MPI_Test");
        const auto now = std::chrono::steady_clock::now();
        channel_->ear.listen(now);
        if (done != 0) {
          return channel_->vote != 0;
        }
        if (now >= until) {
          throw sync_error({errc::timed_out, -1, -1, -1, {}, "not all ranks came as far in split"});
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return false;
  }

  /// Waits, not for long, for the failure that another rank must be about to tell. Throws it.
  [[noreturn]] void throw_what_comes() {
    const auto until = std::chrono::steady_clock::now() + 2 * settlement::round_time;
    for (auto now = until; (now = std::chrono::steady_clock::now()) < until;) {
      {
        const std::lock_guard turn(library_->turn());
        channel_->ear.listen(now);
        if (channel_->ear.has_failed()) {
          throw sync_error(channel_->ear.cause());
        }
      }
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    throw sync_error({errc::timed_out, -1, -1, -1, {}, "a rank gave up while ranks split"});
  }

  library& mpi() { return *library_; }
  const std::shared_ptr<library>& shared_library() const { return library_; }
  MPI_Comm communicator() const { return channel_->data; }

 private:
  using clock = std::chrono::steady_clock;

  /// What the rank that failed has completed, all ranks can complete.
  void throw_if_over() {
    const control& ear = channel_->ear;
    if (ear.has_failed() && ear.cause().collectives_completed < sequence_) {
      throw sync_error(ear.cause());
    }
    if (const auto lost = ear.left_before(sequence_); lost && is_open_) {
      const std::string who = "rank " + std::to_string(*lost);
      throw sync_error({errc::peer_lost, *lost, -1, -1, {}, who + " is gone in the middle of " + what()});
    }
  }

  std::string what() const { return to_string(opening::of(request_, sequence_, {})); }

  /// MPI does not say who is late. Ranks that are in time answer each other when they settle, and name the one that is silent.
  failure timeout_failure() const {
    return {errc::timed_out,
            -1,
            -1,
            -1,
            {},
            std::string(has_entered_ ? "some rank stopped in " : "some rank did not enter ") + what() + " within " +
                std::to_string(options_.timeout.count()) + " ms, as rank " + std::to_string(rank()) + " saw it"};
  }

  /// The communicators are freed once all have left: MPI might give their numbers to others, which would get what is still on
  /// the way. MPI_Comm_free is "anticipated to be local" (MPI 3.1, section 6.4.3). Where anything failed they are given up.
  void leave() {
    const std::lock_guard turn(library_->turn());
    try {
      channel_->ear.leave(completed_);
      if (channel_->ear.has_failed() || is_open_) {
        library_->fail();
        return;
      }
      library_->end_later([left = channel_] { return free_in_silence(left); });
      channel_.reset();
    } catch (const sync_error&) {  // nothing more can be said
      library_->fail();
    }
  }

  static bool free_in_silence(const std::shared_ptr<channel>& left) {
    try {
      left->ear.listen(std::chrono::steady_clock::now());
      if (!left->ear.has_failed() && !left->ear.is_silent()) {
        return false;
      }
      if (!left->ear.has_failed()) {
        left->entrance.free();
        MPI_Comm_free(&left->data);
        MPI_Comm_free(&left->messages);
        return true;
      }
    } catch (const sync_error&) {  // of MPI itself
    }
    keep_for_ever(left);
    return true;
  }

  std::shared_ptr<library> library_;
  options options_;
  std::shared_ptr<arena_list> arenas_;
  std::shared_ptr<channel> channel_;
  collective_request request_;
  bool is_open_ = false;      // a collective
  bool has_entered_ = false;  // all ranks, the one that is open
  std::uint64_t sequence_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t steps_ = 0;  // of the payload, when last looked at
  clock::time_point since_{};
};

}  // namespace gradweave::backend::mpi
