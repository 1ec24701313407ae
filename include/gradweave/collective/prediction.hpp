/// @file
/// How long an all-reduce takes by the algorithm that is asked for, or that would be chosen: its own schedules, run in
/// virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/algorithm.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/host_symmetry.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/select.hpp>
#include <gradweave/collective/virtual_time.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// What is summed over all ranks.
struct summed_buffer {
  std::size_t elements = 0;
  element_kind kind = element_kind::float32;
  all_reduce_algorithm algorithm = all_reduce_algorithm::automatic;
};

struct all_reduce_prediction {
  double seconds = 0;
  all_reduce_algorithm algorithm = all_reduce_algorithm::ring;  ///< which was taken
  std::size_t elements = 0;  ///< as simulated: rounded up where one host stands for all
  bool by_symmetry = false;  ///< one host stands for all
  std::size_t steps = 0;     ///< that were simulated
};

/// Worlds of up to so many steps are simulated rank by rank, with the exact count of elements.
inline constexpr std::size_t steps_simulated_exactly = std::size_t{1} << 16;
/// The most that is simulated: about half a GiB.
inline constexpr std::size_t steps_simulated_max = std::size_t{1} << 22;

namespace detail {

/// Makes schedules by the choice that executors' come from.
class all_reduce_maker {
 public:
  all_reduce_maker(const host_topology& topology, const summed_buffer& buffer)
      : selector_(groups_for(topology, buffer.algorithm), buffer.algorithm),
        buffer_{nullptr, buffer.elements * element_bytes(buffer.kind), 0},
        request_{.operation = collective::all_reduce, .kind = buffer.kind, .data = {&buffer_, 1}} {}
  all_reduce_maker(const all_reduce_maker&) = delete;

  all_reduce_algorithm chosen(int ranks) const { return selector_.choose({0, ranks}, buffer_.bytes); }

  void operator()(schedule_world world, schedule& out) { out = selector_.select(world, request_); }

  /// Of all ranks together, going by a few.
  std::size_t steps(int ranks) {
    std::size_t most = 0;
    schedule plan;
    for (const int rank : std::array{0, ranks / 2, ranks - 1}) {
      (*this)({rank, ranks}, plan);
      most = std::max(most, plan.steps().size());
    }
    return most * static_cast<std::size_t>(ranks);
  }

 private:
  /// Only where memory is shared do groups matter: to name them for thousands of hosts takes long.
  static std::optional<rank_groups> groups_for(const host_topology& topology, all_reduce_algorithm algorithm) {
    const bool share = algorithm == all_reduce_algorithm::shared || algorithm == all_reduce_algorithm::hierarchical ||
                       (algorithm == all_reduce_algorithm::automatic && topology.hosts() != topology.ranks());
    return share ? std::optional<rank_groups>(std::in_place, topology.host_by_rank()) : std::nullopt;
  }

  schedule_selector selector_;
  extent buffer_;
  collective_request request_;
};

}  // namespace detail

/// Ranks of one host share memory where the algorithm uses that. Large worlds whose hosts do the same are simulated by one
/// host, with as many elements as make all pieces equal: up to 16 a rank more. Throws contract_violation where a
/// world is too large otherwise, or the algorithm does not suit it.
inline all_reduce_prediction predict_all_reduce(const cost_model& model, const host_topology& topology,
                                                const summed_buffer& buffer) {
  detail::all_reduce_maker exact(topology, buffer);
  all_reduce_prediction result{.algorithm = exact.chosen(topology.ranks()), .elements = buffer.elements};
  const std::size_t bytes = element_bytes(buffer.kind);
  const auto take = [&](const virtual_run& run) {
    result.seconds = run.seconds;
    result.steps = run.steps;
  };
  // Pieces may be empty, and their steps are there nevertheless; only shared memory leaves them out.
  const std::size_t granule = 16 * static_cast<std::size_t>(topology.ranks());
  const std::size_t rounded = (buffer.elements + granule - 1) / granule * granule;
  detail::all_reduce_maker even(topology, {rounded, buffer.kind, result.algorithm});
  const std::size_t steps = std::max(exact.steps(topology.ranks()), even.steps(topology.ranks()));
  if (steps > steps_simulated_exactly && topology.hosts() > 1 && has_host_symmetry(topology, even)) {
    result.by_symmetry = true;
    result.elements = rounded;
    take(detail::run_in_virtual_time(model, topology, bytes, true, even));
    return result;
  }
  if (steps > steps_simulated_max) {
    violate("virtual time: " + std::string(to_string(result.algorithm)) + " on " + std::to_string(topology.ranks()) +
            " ranks has " + std::to_string(steps) + " steps, more than the " + std::to_string(steps_simulated_max) +
            " that are simulated; give all hosts equally many ranks, or ask for fewer");
  }
  take(simulate_all_ranks(model, topology, bytes, exact));
  return result;
}

}  // namespace gradweave
