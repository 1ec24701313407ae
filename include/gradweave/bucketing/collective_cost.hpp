/// @file
/// What it costs to reduce a bucket: given, taken from a prediction, or measured.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <limits>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave::bucketing {

/// A bucket of so many bytes takes alpha + bytes * beta. The number of ranks, the algorithm and the compression are in it.
/// Ranks must have the same.
struct collective_cost {
  double alpha_s = 200e-6;          ///< seconds a bucket, however small
  double beta_s_per_byte = 0.5e-9;  ///< seconds a byte of gradients; about a ring over 25 Gbit/s

  friend bool operator==(const collective_cost&, const collective_cost&) = default;

  double seconds(std::size_t bytes) const { return alpha_s + static_cast<double>(bytes) * beta_s_per_byte; }

  /// Throws contract_violation where they are no times.
  void check() const {
    require(std::isfinite(alpha_s) && alpha_s >= 0 && std::isfinite(beta_s_per_byte) && beta_s_per_byte >= 0,
            "collective_cost: alpha and beta have to be times, 0 or more");
  }

  void describe(description& sink) const {
    sink.add("alpha_s", alpha_s);
    sink.add("beta_s_per_byte", beta_s_per_byte);
  }
};

/// The sizes between which costs are taken for a line.
inline constexpr std::size_t cost_bytes_small = std::size_t{4} << 10;
inline constexpr std::size_t cost_bytes_large = std::size_t{4} << 20;

/// The line through what `seconds_of(bytes)` says, a prediction for example; neither number is below 0.
template <std::invocable<std::size_t> SecondsOf>
collective_cost cost_from(SecondsOf&& seconds_of) {
  const double small_s = seconds_of(cost_bytes_small);
  const double large_s = seconds_of(cost_bytes_large);
  const double beta = std::max(0.0, (large_s - small_s) / static_cast<double>(cost_bytes_large - cost_bytes_small));
  return {std::max(0.0, small_s - static_cast<double>(cost_bytes_small) * beta), beta};
}

/// The line through a few all-reduces of float32 over `backend`, which is not used otherwise meanwhile: the fastest of
/// each size, on the rank where they took longest. Every rank calls it, and all get the same. Takes as long as about ten
/// all-reduces of 4 MiB. Throws sync_error where a rank fails.
template <host_backend Backend>
  requires can_all_reduce<Backend>
collective_cost measure_cost(Backend& backend) {
  const auto memory = backend.allocate_arena(cost_bytes_large);
  collective_cost cost = cost_from([&](std::size_t bytes) {
    const extent whole{memory.data(), bytes, 0};
    constexpr int repetitions = 8;
    double best_s = std::numeric_limits<double>::infinity();
    for (int i = 0; i < repetitions; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      run_collective(backend,
                     {.operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}});
      best_s = std::min(best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    return best_s;
  });
  double agreed[] = {cost.alpha_s, cost.beta_s_per_byte};
  const extent both{reinterpret_cast<std::byte*>(agreed), sizeof agreed, 0};
  run_collective(backend, {.operation = collective::all_reduce,
                           .kind = element_kind::float64,
                           .reduce = {.operation = reduction_operation::max},
                           .data = {&both, 1}});
  return {agreed[0], agreed[1]};
}

}  // namespace gradweave::bucketing
