/// @file
/// The MPI backend: ranks are the processes of an MPI job, and collectives are MPI's own. docs/reference/mpi.md tells what it
/// asks of MPI.
#pragma once

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <mpi.h>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/groups.hpp>
#include <gradweave/backend/kin.hpp>
#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/backend/mpi/library.hpp>
#include <gradweave/backend/mpi/member.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/description.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::backend::mpi {

/// What: MPI's collectives. Models host_backend, can_split. Numerics: sums of 32 and 64 bits are MPI's, in an order that MPI
/// chooses; all others are added in rank order, 16-bit floats in float32 with one rounding. Threading: as a host_backend; it
/// calls MPI from whatever thread calls it, one at a time for a job and its groups. Failure: docs/reference/mpi.md.
class backend_type {
 public:
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::host;
  static constexpr collective_set capabilities = {
      collective::all_reduce, collective::reduce_scatter, collective::all_gather, collective::all_to_all,
      collective::broadcast,  collective::barrier,        collective::gather};

  int rank() const { return member_->rank(); }
  int size() const { return member_->size(); }

  arena allocate_arena(std::size_t bytes) { return member_->allocate_arena(bytes); }

  void start(const collective_request& request) {
    constexpr collective_set with_pieces = {collective::reduce_scatter, collective::all_gather, collective::all_to_all,
                                            collective::gather};
    const auto positions = static_cast<std::size_t>(size()) + 1;
    require(!with_pieces.contains(request.operation) || request.pieces.size() == positions,
            "backend: pieces must hold a position a rank, and the end");
    require(request.operation != collective::all_to_all || request.source_pieces.size() == positions,
            "backend: source_pieces must hold a position a rank, and the end");
    payload_bytes_started_ = payload_bytes_of(request);
    member_->start(request);
  }
  bool poll() {
    const bool complete = member_->poll();
    if (complete) {
      payload_bytes_sent_ += std::exchange(payload_bytes_started_, 0);
    }
    return complete;
  }
  void wait() { member_->wait(); }

  /// Also tells the groups, and the whole job, that this rank is in.
  failure abort(failure cause) { return kin_->spread(*member_, member_->abort(std::move(cause))); }

  /// The least that any algorithm sends: MPI does not tell how it does it.
  std::uint64_t payload_bytes_sent() const { return payload_bytes_sent_; }

  /// The backend of this rank's group, see can_split; it has the options of this one. Throws sync_error, on every rank,
  /// where any rank failed, and contract_violation for a colour below 0 that is not no_group.
  std::optional<backend_type> split(int colour, int key) {
    bool has_voted = false;
    try {
      require(colour >= 0 || colour == no_group, "split: a colour must be at least 0, or no_group");
      const std::vector<int> members = members_of_group(colour, key);
      // MPI_Comm_split has no deadline: a rank enters it only where it knows that all others will.
      has_voted = true;
      if (!member_->all_agree(true)) {
        member_->throw_what_comes();
      }
      return make_group(colour, key, members);
    } catch (const sync_error& error) {
      refuse(has_voted);
      throw sync_error(abort(error.cause()));
    } catch (const std::exception& fault) {
      refuse(has_voted);
      abort({errc::aborted, rank(), -1, -1, {}, fault.what()});
      throw;
    }
  }

  void describe(description& sink) const {
    sink.add("name", "mpi");
    sink.add("size", size());
    if (is_group_) {
      sink.add("group", ranks_in_words(members_) + " of the job");
    }
    sink.add("timeout_ms", options_.timeout.count());
    sink.add("chunk_bytes", options_.chunk_bytes_of(size()));
    sink.add("library", library_);
  }

 private:
  friend backend_type from_communicator(MPI_Comm communicator, const options& given);
  friend backend_type from_environment(const options& given);

  /// The members are ranks of the whole job; none are given for all of it.
  backend_type(std::shared_ptr<library> of, MPI_Comm data, MPI_Comm messages, const options& given,
               std::shared_ptr<kin<member>> related, std::vector<int> members)
      : options_(given),
        library_(library_name()),
        kin_(std::move(related)),
        members_(std::move(members)),
        is_group_(!members_.empty()),
        member_(std::make_shared<member>(std::move(of), data, messages, given)) {
    for (int each = 0; !is_group_ && each < size(); ++each) {
      members_.push_back(each);
    }
    kin_->add(member_, members_);
  }

  /// A copy of `original` that returns errors.
  static MPI_Comm duplicate(MPI_Comm original) {
    MPI_Comm copy = MPI_COMM_NULL;
    check(MPI_Comm_dup(original, &copy), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return copy;
  }

  /// The same for a communicator of the program's, which not all ranks may come to duplicate.
  static MPI_Comm duplicate_in_time(MPI_Comm original, std::chrono::milliseconds timeout) {
    struct copying {
      MPI_Comm copy = MPI_COMM_NULL;
      MPI_Request request = MPI_REQUEST_NULL;
    };
    auto under_way = std::make_unique<copying>();
    check(MPI_Comm_idup(original, &under_way->copy, &under_way->request), "MPI_Comm_idup");
    const auto until = std::chrono::steady_clock::now() + timeout;
    for (int done = 0; done == 0;) {
      check(MPI_Test(&under_way->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0 && std::chrono::steady_clock::now() >= until) {
        keep_for_ever(std::move(under_way));
        throw sync_error({errc::timed_out,
                          -1,
                          -1,
                          -1,
                          {},
                          "not all ranks of the communicator made a backend of it within " +
                              std::to_string(timeout.count()) + " ms"});
      }
      std::this_thread::sleep_for(std::chrono::microseconds(done == 0 ? 50 : 0));
    }
    check(MPI_Comm_set_errhandler(under_way->copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return under_way->copy;
  }

  static backend_type over(const std::shared_ptr<library>& of, MPI_Comm communicator, const options& given) {
    require(given.timeout.count() > 0, "backend: the timeout must be positive");
    require((given.chunk_bytes == 0 || given.chunk_bytes >= 64) && given.count_max >= 64 && given.count_max <= INT_MAX,
            "mpi: chunk_bytes must be 64 or more (or 0), and count_max 64 to 2^31 - 1");
    try {
      const MPI_Comm data = duplicate_in_time(communicator, given.timeout);
      const MPI_Comm messages = duplicate(data);
      return {of, data, messages, given, std::make_shared<kin<member>>(), {}};
    } catch (const sync_error&) {
      of->fail();
      throw;
    }
  }

  std::vector<int> members_of_group(int colour, int key) {
    std::vector<group_place> places(static_cast<std::size_t>(size()));
    places[static_cast<std::size_t>(rank())] = {colour, key};
    std::vector<std::size_t> pieces;
    for (std::size_t r = 0; r <= places.size(); ++r) {
      pieces.push_back(r * sizeof(group_place));
    }
    const extent whole{reinterpret_cast<std::byte*>(places.data()), pieces.back(), 0};
    run_collective(*this, {.operation = collective::all_gather,
                           .kind = element_kind::uint8,
                           .plan_version = split_version,
                           .data = {&whole, 1},
                           .pieces = pieces});
    return colour == no_group ? std::vector<int>() : group_members(places, rank());
  }

  /// No plan has it: nothing else is taken for the first part of a split.
  static constexpr std::uint32_t split_version = UINT32_MAX;

  std::optional<backend_type> make_group(int colour, int key, const std::vector<int>& members) {
    MPI_Comm data = MPI_COMM_NULL;
    MPI_Comm messages = MPI_COMM_NULL;
    {
      const std::lock_guard turn(member_->mpi().turn());
      check(MPI_Comm_split(member_->communicator(), colour == no_group ? MPI_UNDEFINED : colour, key, &data),
            "MPI_Comm_split");
      if (data == MPI_COMM_NULL) {
        return std::nullopt;
      }
      check(MPI_Comm_set_errhandler(data, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
      messages = duplicate(data);
    }
    std::vector<int> job_ranks;
    for (const int each : members) {
      job_ranks.push_back(members_[static_cast<std::size_t>(each)]);
    }
    return backend_type(member_->shared_library(), data, messages, options_, kin_, std::move(job_ranks));
  }

  /// Others wait for this rank's vote.
  void refuse(bool has_voted) {
    if (!has_voted) {
      try {
        member_->all_agree(false);
      } catch (const sync_error&) {  // of MPI itself; what is told is the cause before
      }
    }
  }

  /// Of an all-reduce, what a reduce-scatter and an all-gather send.
  std::uint64_t payload_bytes_of(const collective_request& request) const {
    const std::uint64_t all = total_bytes(request.data);
    const auto others = static_cast<std::uint64_t>(size() - 1);
    const auto own = [&](std::span<const std::size_t> pieces) {
      const auto r = static_cast<std::size_t>(rank());
      return (pieces[r + 1] - pieces[r]) * element_bytes(request.kind);
    };
    switch (request.operation) {
      case collective::all_reduce: {
        const std::size_t elements = all / element_bytes(request.kind);
        const std::size_t share = elements / static_cast<std::size_t>(size());
        const bool takes_more = static_cast<std::size_t>(rank()) < elements % static_cast<std::size_t>(size());
        const std::uint64_t owned = (share + (takes_more ? 1 : 0)) * element_bytes(request.kind);
        return all - owned + others * owned;
      }
      case collective::reduce_scatter: return all - own(request.pieces);
      case collective::all_gather: return others * own(request.pieces);
      case collective::all_to_all: return total_bytes(request.source) - own(request.source_pieces);
      case collective::broadcast: return rank() == request.root ? others * all : 0;
      case collective::gather: return rank() == request.root ? 0 : own(request.pieces);
      case collective::barrier: break;
    }
    return 0;
  }

  options options_;
  std::string library_;
  std::shared_ptr<kin<member>> kin_;
  std::vector<int> members_;  // as ranks of the whole job
  bool is_group_ = false;
  std::uint64_t payload_bytes_started_ = 0;
  std::uint64_t payload_bytes_sent_ = 0;
  std::shared_ptr<member> member_;  // shared with whoever aborts: it must not move
};

static_assert(host_backend<backend_type>);
static_assert(can_split<backend_type>);

/// A backend over the ranks of `communicator`, which all call this at once; it uses copies of it. The program has initialized
/// MPI, and ends it after the backend and its arenas. Throws sync_error where not all come in time, and contract_violation
/// where MPI's thread level does not do.
inline backend_type from_communicator(MPI_Comm communicator, const options& given = {}) {
  int begun = 0;
  MPI_Initialized(&begun);
  require(begun != 0, "mpi: a communicator was given, but MPI has not been initialized");
  return backend_type::over(std::make_shared<library>(given.only_caller), communicator, given);
}

/// A backend over all ranks of the job that mpirun or srun started; one rank where nobody did. Where the program has not
/// initialized MPI, this does, and ends it with the last backend and arena, unless the job failed.
inline backend_type from_environment(const options& given = {}) {
  return backend_type::over(std::make_shared<library>(given.only_caller), MPI_COMM_WORLD, given);
}

}  // namespace gradweave::backend::mpi
