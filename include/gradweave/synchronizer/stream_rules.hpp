/// @file
/// What steps on a stream can't do yet, said when the manifest is sealed.
#pragma once

#include <span>

#include <gradweave/assert.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>

namespace gradweave::detail {

/// Throws contract_violation for a rule whose outcome the host would have to know in each step, and for what no kernel does yet.
inline void check_stream_rules(const step_rules& rules, std::span<const manifest_buffer> buffers) {
  require(
      rules.unused_gradients == unused::strict,
      "synchronize: on a stream every gradient has to be used in every step; unused::zero_fill needs a host backend");
  require(
      rules.average != averaging::weighted_mean && rules.joined == joined_ranks::counted,
      "synchronize: on a stream all ranks weigh the same; averaging::weighted_mean and joined_ranks::left_out need a "
      "host backend");
  require(rules.divide == division::after,
          "synchronize: on a stream a mean is divided after the sum; division::before and division::split need a host "
          "backend");
  require(rules.uses == use_counts::declared,
          "synchronize: on a stream the uses of a gradient have to be declared to manifest::add; use_counts::recorded "
          "needs a host backend");
  require(rules.values.compare_every == 0,
          "synchronize: on a stream parameters are not compared; parameters::compare_every needs a host backend");
  require(buffers.empty(),
          "synchronize: on a stream no buffers are synchronized; manifest::add_buffer needs a host backend");
}

}  // namespace gradweave::detail
