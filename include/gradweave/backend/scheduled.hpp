/// @file
/// `scheduled<Transport>`: the backend that runs schedules through the executor over any transport. Every host backend
/// of the library's own is one of these.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/groups.hpp>
#include <gradweave/backend/kin.hpp>
#include <gradweave/collective/algorithm.hpp>
#include <gradweave/collective/executor.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/select.hpp>
#include <gradweave/environment_variable.hpp>
#include <gradweave/error.hpp>
#include <gradweave/host_memory.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::backend {

/// What a scheduled backend may be told.
struct scheduled_options {
  /// How long a rank waits without any progress for another to enter a collective before it gives the job up; half as
  /// long again where it only waits for payload, so that who knows the missing rank speaks first. Longer than the longest
  /// pause that one rank makes and others do not: an evaluation, a checkpoint.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// How sums are made: `direct` and `shared` add in rank order, so that the result does not depend on how gradients are
  /// cut into buckets.
  all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
  /// How much of a message is received before it is reduced, while it is in cache: piece_bytes_min to piece_bytes_max.
  std::size_t piece_bytes = std::size_t{64} << 10;

  static constexpr std::size_t piece_bytes_min = std::size_t{1} << 10;
  static constexpr std::size_t piece_bytes_max = std::size_t{64} << 20;

  friend bool operator==(const scheduled_options&, const scheduled_options&) = default;
};

/// `given`, with the algorithm that GRADWEAVE_ALGORITHM names and the size in GRADWEAVE_PIECE_BYTES where they are set.
/// `look(name)` is the variable's value, if any. Throws contract_violation where there is no such algorithm or size.
template <class Look>
scheduled_options scheduled_options_from(Look&& look, scheduled_options given = {}) {
  if (const std::optional<std::string> name = look("GRADWEAVE_ALGORITHM")) {
    const auto named = algorithm_named(*name);
    if (!named) {
      std::string known;
      for (const std::string_view each : algorithm_names) {
        known += (known.empty() ? "" : ", ") + std::string(each);
      }
      violate("the environment variable GRADWEAVE_ALGORITHM is '" + *name + "'; it has to be one of " + known);
    }
    given.algorithm = *named;
  }
  if (const std::optional<std::string> bytes = look("GRADWEAVE_PIECE_BYTES")) {
    given.piece_bytes = static_cast<std::size_t>(
        detail::number_in("GRADWEAVE_PIECE_BYTES", *bytes, static_cast<long>(scheduled_options::piece_bytes_min),
                          static_cast<long>(scheduled_options::piece_bytes_max)));
  }
  return given;
}

template <byte_transport Transport>
class scheduled {
 public:
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::host;
  static constexpr collective_set capabilities = scheduled_collectives;

  /// `name` must outlive the backend; it is what the report calls it.
  scheduled(const char* name, Transport transport, scheduled_options options = {})
      : scheduled(name, std::move(transport), options, std::make_shared<kin<executor<Transport>>>(), {}) {}

  int rank() const { return executor_->transport().rank(); }
  int size() const { return executor_->transport().size(); }

  /// The backend of this rank's group, see can_split; it has the options of this one. Throws sync_error, on every rank,
  /// where any rank failed, and contract_violation for a colour below 0 that is not no_group.
  std::optional<scheduled> split(int colour, int key)
    requires transport_makes_groups<Transport>
  {
    try {
      require(colour >= 0 || colour == no_group, "split: a colour must be at least 0, or no_group");
      std::vector<group_place> places(static_cast<std::size_t>(size()));
      const group_place own{colour, key};
      const gather_own gather{this};
      gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(places)));
      const std::vector<int> members = colour == no_group ? std::vector<int>() : group_members(places, rank());
      std::optional<Transport> transport = executor_->transport().subgroup(members, gather);
      std::optional<scheduled> group;
      if (transport) {
        std::vector<int> job_ranks;
        for (const int member : members) {
          job_ranks.push_back(members_[static_cast<std::size_t>(member)]);
        }
        group = scheduled(name_, std::move(*transport), options_, kin_, std::move(job_ranks));
      }
      run_collective(*this, {.operation = collective::barrier});  // nobody has a group unless all have theirs
      return group;
    } catch (const sync_error& error) {
      throw sync_error(abort(error.cause()));
    } catch (const std::exception& fault) {
      abort({errc::aborted, rank(), -1, -1, {}, fault.what()});
      throw;
    }
  }

  auto allocate_arena(std::size_t bytes) {
    if constexpr (transport_shares_memory<Transport>) {
      return executor_->transport().allocate(bytes);
    } else {
      return host_memory(bytes);
    }
  }

  void start(const collective_request& request) {
    constexpr collective_set with_pieces = {collective::reduce_scatter, collective::all_gather, collective::all_to_all,
                                            collective::gather};
    const bool cut = with_pieces.contains(request.operation);
    const auto positions = static_cast<std::size_t>(size()) + 1;
    require(!cut || request.pieces.size() == positions, "backend: pieces must hold a position a rank, and the end");
    require(request.operation != collective::all_to_all || request.source_pieces.size() == positions,
            "backend: source_pieces must hold a position a rank, and the end");
    executor_->start(request, selector_.select({rank(), size()}, request));
  }
  bool poll() { return executor_->poll(); }
  void wait() { executor_->wait(); }

  /// Between collectives: throws sync_error once any rank has given the job up or is gone, though none may leave yet. Waits
  /// for nothing.
  void check() {
    auto& transport = executor_->transport();
    static_cast<void>(transport.events());
    int lost = rank();
    for (int peer = 0; peer < size(); ++peer) {
      lost = peer != rank() && transport.peer_closed(peer) ? peer : lost;
    }
    if (const failure* const cause = transport.aborted()) {  // it may have said why it goes
      throw sync_error(*cause);
    }
    if (lost != rank()) {
      throw sync_error({errc::peer_lost, lost, -1, -1, {}, "rank " + std::to_string(lost) + " is gone"});
    }
  }

  /// Also tells the groups, and the whole job, that this rank is in.
  failure abort(failure cause) {
    failure story = executor_->abort(std::move(cause));
    if constexpr (transport_makes_groups<Transport>) {
      story = kin_->spread(*executor_, std::move(story));
    }
    return story;
  }

  std::uint64_t payload_bytes_sent() const { return executor_->payload_bytes_sent(); }

  /// Collectives since the start: the number of the one that was begun last.
  std::uint64_t collectives_started() const { return executor_->collectives_started(); }

  /// How this rank reaches the others, and which ranks share memory, as far as the transport tells: for the report at the
  /// start. Of many ranks the first.
  void describe_peers(description& sink) const {
    const auto& transport = std::as_const(executor_->transport());
    const int listed = std::min(size(), 64);
    for (int peer = 0; peer < listed; ++peer) {
      if constexpr (requires { transport.route(peer); }) {
        if (peer != rank()) {
          sink.add("to rank " + std::to_string(peer), transport.route(peer));
        }
      }
      if constexpr (transport_shares_memory<Transport>) {
        const auto in_group = [&](int other) { return transport.memory_group(other) == transport.memory_group(peer); };
        std::string members;
        for (int other = 0; other < size(); ++other) {
          members += in_group(other) ? (members.empty() ? "" : ", ") + std::to_string(other) : "";
        }
        if (members.starts_with(std::to_string(peer) + ",")) {  // said once, by the first, if there is a second
          sink.add("ranks that share memory", members);
        }
      }
    }
  }

  /// What is this rank's own, where the transport says something: for the report.
  void describe_here(description& sink) const {
    if constexpr (requires { executor_->transport().describe_here(sink); }) {
      std::as_const(executor_->transport()).describe_here(sink);
    }
  }

  void describe(description& sink) const {
    sink.add("name", name_);
    sink.add("size", size());
    if (is_group_) {
      sink.add("group", ranks_in_words(members_) + " of the job");
    }
    sink.add("timeout_ms", options_.timeout.count());
    sink.add("all_reduce", selector_.choices({rank(), size()}));
    if constexpr (requires { executor_->transport().describe(sink); }) {
      std::as_const(executor_->transport()).describe(sink);
    }
  }

 private:
  /// The members are ranks of the whole job; none are given for all of it.
  scheduled(const char* name, Transport transport, scheduled_options options,
            std::shared_ptr<kin<executor<Transport>>> related, std::vector<int> members)
      : name_(name),
        options_(options),
        kin_(std::move(related)),
        members_(std::move(members)),
        executor_(std::make_shared<executor<Transport>>(std::move(transport), options.timeout, options.piece_bytes)) {
    require(options.timeout.count() > 0, "backend: the timeout must be positive");
    require(options.piece_bytes >= scheduled_options::piece_bytes_min &&
                options.piece_bytes <= scheduled_options::piece_bytes_max,
            "backend: piece_bytes must be 1 KiB to 64 MiB");
    is_group_ = !members_.empty();
    for (int each = 0; !is_group_ && each < size(); ++each) {
      members_.push_back(each);
    }
    kin_->add(executor_, members_);
    if constexpr (transport_shares_memory<Transport> &&
                  requires(gather_own gather) { executor_->transport().share(gather); }) {
      executor_->transport().share(gather_own{this});
    }
    selector_ = schedule_selector(memory_groups(), options.algorithm);
  }

  /// Collects what each rank gives, in rank order, on all ranks; over messages, since nobody shares memory yet.
  struct gather_own {
    scheduled* backend;
    void operator()(std::span<const std::byte> own, std::span<std::byte> all) const {
      const auto begin = static_cast<std::size_t>(backend->rank()) * own.size();
      std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(begin));
      std::vector<std::size_t> pieces;
      for (std::size_t r = 0; r <= static_cast<std::size_t>(backend->size()); ++r) {
        pieces.push_back(r * own.size());
      }
      const extent whole{all.data(), all.size(), 0};
      run_collective(
          *backend,
          {.operation = collective::all_gather, .kind = element_kind::uint8, .data = {&whole, 1}, .pieces = pieces});
    }
  };

  std::optional<rank_groups> memory_groups() const {
    if constexpr (transport_shares_memory<Transport>) {
      std::vector<int> group_of;
      for (int rank = 0; rank < size(); ++rank) {
        group_of.push_back(executor_->transport().memory_group(rank));
      }
      return rank_groups(group_of);
    }
    return std::nullopt;
  }

  const char* name_;
  scheduled_options options_;
  schedule_selector selector_;
  std::shared_ptr<kin<executor<Transport>>> kin_;
  std::vector<int> members_;  // as ranks of the whole job
  bool is_group_ = false;
  std::shared_ptr<executor<Transport>> executor_;  // shared with whoever aborts: it must not move
};

}  // namespace gradweave::backend
