/// @file
/// The umbrella: everything that needs no third-party package, and `synchronize` with its defaults. A backend that needs
/// an SDK is another include.
#pragma once

#include <concepts>
#include <exception>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/merge_optimal.hpp>
#include <gradweave/bucketing/needed_first.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/compression/all_reduce.hpp>
#include <gradweave/compression/coded.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/hook.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/environment_variable.hpp>
#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/one_of.hpp>
#include <gradweave/overlap/blocking.hpp>
#include <gradweave/overlap/progress_thread.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer.hpp>
#include <gradweave/synchronizer/stream_synchronizer.hpp>
#include <gradweave/version.hpp>

namespace gradweave {

namespace detail {

/// As its execution says which it is meant to be.
template <class Backend>
consteval bool explain_any_backend() {
  if constexpr (backend_has_execution<Backend>) {
    if constexpr (Backend::execution == execution_model::stream) {
      return explain_stream_backend<Backend>();
    } else {
      return explain_host_backend<Backend>();
    }
  } else {
    return explain_host_backend<Backend>();
  }
}

}  // namespace detail

/// Seals `gradients` over `backend`. Policies come in any order and are told apart by the concept that they model; what
/// is not given is a default: bucketing::ready_order, compression::none, overlap::progress_thread, and the rules of
/// step_rules.hpp as they are there: unused::strict, averaging::mean, division::after, use_counts::declared. Environment variables
/// that a policy listens to replace its options. Throws sync_error on every rank where ranks disagree, and
/// contract_violation on a malformed variable; the other ranks are told. Over a stream backend the overlap policy makes the
/// device, so there is no default for it: overlap::cuda_stream is one.
template <class Backend, class... Policies>
  requires((host_backend<Backend> || stream_backend<Backend>) && (detail::any_policy<Policies> && ...))
[[nodiscard]] auto synchronize(manifest gradients, Backend backend, Policies... policies) {
  static_assert(detail::count_policies<detail::is_bucketing, Policies...> <= 1, "synchronize: two bucketing policies");
  static_assert(detail::count_policies<detail::is_compression, Policies...> <= 1,
                "synchronize: two compression policies; to choose at run time use one_of");
  static_assert(detail::count_policies<detail::is_overlap, Policies...> <= 1, "synchronize: two overlap policies");
  auto bucketing = detail::pick_policy<detail::is_bucketing>(bucketing::ready_order{}, policies...);
  auto compression =
      compression::as_compression(detail::pick_policy<detail::is_compression>(compression::none{}, policies...));
  auto overlap = detail::pick_policy<detail::is_overlap>(overlap::progress_thread{}, policies...);
  if constexpr (stream_backend<Backend>) {
    static_assert(explain_stream_overlap<decltype(overlap)>());
  }
  diagnostics_options diagnostics;
  try {
    bucketing = detail::honour_environment(std::move(bucketing));
    compression = detail::honour_environment(std::move(compression));
    overlap = detail::honour_environment(std::move(overlap));
    if constexpr (host_backend<Backend>) {
      diagnostics = diagnostics_options_from(environment_variable);
    }
  } catch (const std::exception& fault) {
    backend.abort({errc::aborted, backend.rank(), -1, -1, {}, fault.what()});
    throw;
  }
  using made = synchronizer<Backend, decltype(bucketing), decltype(compression), decltype(overlap)>;
  const step_rules rules = detail::pick_rules(policies...);
  if constexpr (host_backend<Backend>) {
    return made(std::move(gradients), std::move(backend), std::move(bucketing), std::move(compression),
                std::move(overlap), rules, diagnostics);
  } else {
    return made(std::move(gradients), std::move(backend), std::move(bucketing), std::move(compression),
                std::move(overlap), rules);
  }
}

/// Never compiles: says what the backend, or an argument after it, misses.
template <class Backend, class... Policies>
  requires(!((host_backend<Backend> || stream_backend<Backend>) && (detail::any_policy<Policies> && ...)))
void synchronize(manifest, Backend, Policies...) {
  if constexpr (!stream_backend<Backend>) {
    detail::explain_any_backend<Backend>();
  }
  (detail::explain_policy<Policies>(), ...);
}

}  // namespace gradweave
