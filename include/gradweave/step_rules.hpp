/// @file
/// How steps treat gradients, beside the policies: plain choices, given to `synchronize` among them and told apart by
/// their types. All ranks must choose alike.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>

#include <gradweave/assert.hpp>
#include <gradweave/description.hpp>

namespace gradweave {

/// What becomes of a gradient that never became ready in a step.
enum class unused : std::uint8_t {
  strict,     ///< the step throws on every rank, and names slot and bucket
  zero_fill,  ///< it counts as zeros; where no rank has it, every rank's gradient stays as it was
};

/// What gradients are after a step.
enum class averaging : std::uint8_t {
  mean,           ///< the sum over ranks, divided by their number
  sum,            ///< the sum over ranks
  weighted_mean,  ///< over the samples of all ranks: step_options::samples says how many a rank's gradient is the mean of
};

/// Where the division of a mean by the number of ranks N happens. It matters where gradients, or what travels, have less
/// than 32 bits: sums of float16 overflow above 65504, quotients below 6e-8 vanish.
enum class division : std::uint8_t {
  after,   ///< once, of the sum; two-phase reductions sum in float32, so that the sum can't overflow
  before,  ///< of each rank's gradient
  split,   ///< by the square root of N before, and again after
};

/// How often a gradient becomes ready in one step.
enum class use_counts : std::uint8_t {
  declared,  ///< as often as manifest::add was told: once where nothing is said
  recorded,  ///< as often as in the first step, whose buckets travel at its end
};

/// What a mean divides by while ranks that have run out of data take part in the steps of others (synchronizer::join).
enum class joined_ranks : std::uint8_t {
  counted,   ///< by the number of all ranks: a step weighs less, the fewer have data
  left_out,  ///< by the number of those that have data; that costs a small collective a step
};

/// What is done about parameters, those that were registered beside their gradients.
struct parameters {
  int broadcast_from = 0;  ///< the rank whose values all ranks begin with
  /// Every so many steps ranks compare their parameters' checksums, and all throw where any differs; 0: only at the start.
  /// The parameters then have to live as long as the synchronizer.
  std::uint64_t compare_every = 0;

  friend bool operator==(const parameters&, const parameters&) = default;
};

/// What one step of one rank may be told.
struct step_options {
  /// What this rank's gradient is the mean of, for averaging::weighted_mean only: at most samples_max.
  std::uint64_t samples = 1;
  /// What this rank's loss was multiplied by before the backward pass, so that small gradients do not vanish in 16 bits
  /// (Micikevicius et al., Mixed precision training, ICLR 2018). It is compared only: where it differs between ranks that
  /// have data, the step throws on all of them.
  float loss_scale = 1;
};

/// The most samples of a rank: up to it every integer is a double.
inline constexpr std::uint64_t samples_max = std::uint64_t{1} << 53;

/// The rules of a synchronizer.
struct step_rules {
  unused unused_gradients = unused::strict;
  averaging average = averaging::mean;
  division divide = division::after;
  use_counts uses = use_counts::declared;
  joined_ranks joined = joined_ranks::counted;
  parameters values = {};

  friend bool operator==(const step_rules&, const step_rules&) = default;

  /// Whether ranks count differently in an average.
  bool is_weighted() const { return average == averaging::weighted_mean || joined == joined_ranks::left_out; }

  /// Throws contract_violation where two rules contradict each other.
  void check() const {
    require(average == averaging::mean || divide == division::after,
            "synchronize: division::before and division::split are for averaging::mean");
    require(
        joined == joined_ranks::counted || (average == averaging::mean && divide == division::after),
        "synchronize: joined_ranks::left_out is for averaging::mean with division::after; a sum has nothing to divide "
        "by, and a weighted mean leaves out who has no samples anyway");
  }

  /// Throws contract_violation where a step is told what these rules have no use for.
  void check(const step_options& options) const {
    require(options.samples <= samples_max, "begin_step: samples must be at most 2^53");
    require(std::isfinite(options.loss_scale) && options.loss_scale > 0,
            "begin_step: the loss scale must be positive and finite");
    require(options.samples == 1 || average == averaging::weighted_mean,
            "begin_step: samples weigh ranks under averaging::weighted_mean only; give that rule to synchronize, or "
            "tell no samples");
  }

  /// What is not as usual.
  void describe(description& sink) const {
    if (unused_gradients == unused::zero_fill) {
      sink.add("unused", "zero_fill");
    }
    if (average != averaging::mean) {
      sink.add("averaging", average == averaging::sum ? "sum" : "weighted_mean");
    }
    if (divide != division::after) {
      sink.add("division", divide == division::before ? "before" : "split");
    }
    if (uses == use_counts::recorded) {
      sink.add("uses", "recorded");
    }
    if (joined == joined_ranks::left_out) {
      sink.add("joined_ranks", "left_out");
    }
    if (values != parameters{}) {
      sink.add("parameters.broadcast_from", values.broadcast_from);
      sink.add("parameters.compare_every", values.compare_every);
    }
  }
};

/// A choice among the rules.
template <class T>
concept step_rule = std::same_as<T, unused> || std::same_as<T, averaging> || std::same_as<T, division> ||
                    std::same_as<T, use_counts> || std::same_as<T, parameters> || std::same_as<T, joined_ranks>;

}  // namespace gradweave
