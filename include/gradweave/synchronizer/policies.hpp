/// @file
/// Picks policies out of an argument list by the concept that they model, in any order.
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/step_rules.hpp>

namespace gradweave::detail {

template <class Policy>
struct is_bucketing {
  static constexpr bool value = bucketing_policy<Policy>;
};
template <class Policy>
struct is_compression {
  static constexpr bool value = compression_policy<Policy> || codec<Policy>;
};
template <class Policy>
struct is_overlap {
  static constexpr bool value = overlap_policy<Policy>;
};

template <class Policy>
concept any_policy =
    is_bucketing<Policy>::value || is_compression<Policy>::value || is_overlap<Policy>::value || step_rule<Policy>;

template <class Rule>
struct is_rule {
  template <class Policy>
  struct same {
    static constexpr bool value = std::same_as<Policy, Rule>;
  };
};

/// What of a concept a type seems to be meant for: it has one of the atoms, or a member of one of the names.
template <class P>
concept resembles_bucketing =
    bucketing_makes_plan<P> || bucketing_replans<P> || requires { &P::plan; } || requires { &P::replans_after; };
template <class P>
concept resembles_codec =
    codec_has_block<P> || fixed_wire_size<P> || requires { &P::encode; } || requires { &P::decode; };
template <class P>
concept resembles_compression = compression_prepares<P> || compression_has_collectives<P> || requires { &P::prepare; };
template <class P>
concept resembles_overlap =
    overlap_makes_lane<P> || requires { &P::make_lane; } || requires { &P::template make_lane<lane_work_archetype>; };

/// Says in one sentence what `P` misses of the policy concept that it comes nearest to. Compiles for a policy.
template <class P>
consteval bool explain_policy() {
  if constexpr (any_policy<P>) {
    return true;
  } else if constexpr (resembles_bucketing<P>) {
    return explain_bucketing<P>();
  } else if constexpr (resembles_overlap<P>) {
    return explain_overlap<P>();
  } else if constexpr (resembles_compression<P>) {
    return explain_compression<P>();
  } else if constexpr (resembles_codec<P>) {
    return explain_codec<P>();
  } else {
    static_assert(
        any_policy<P>,
        "synchronize: an argument after the backend is no policy; pass bucketing, compression (or a codec) and "
        "overlap policies, and rules such as unused::zero_fill, in any order");
    return false;
  }
}

template <template <class> class Is, class... Policies>
inline constexpr std::size_t count_policies = (std::size_t{0} + ... + std::size_t{Is<Policies>::value});

/// The one policy among `rest` for which Is holds, else `fallback`.
template <template <class> class Is, class Fallback>
constexpr Fallback pick_policy(Fallback fallback) {
  return fallback;
}
template <template <class> class Is, class Fallback, class First, class... Rest>
constexpr auto pick_policy(Fallback fallback, First first, Rest... rest) {
  if constexpr (Is<First>::value) {
    return first;
  } else {
    return pick_policy<Is>(std::move(fallback), std::move(rest)...);
  }
}

/// The rules among `policies`; what is not given is as usual.
template <class... Policies>
step_rules pick_rules(const Policies&... policies) {
  static_assert(((count_policies<is_rule<unused>::same, Policies...> <= 1) &&
                 (count_policies<is_rule<averaging>::same, Policies...> <= 1) &&
                 (count_policies<is_rule<division>::same, Policies...> <= 1) &&
                 (count_policies<is_rule<use_counts>::same, Policies...> <= 1) &&
                 (count_policies<is_rule<joined_ranks>::same, Policies...> <= 1) &&
                 (count_policies<is_rule<parameters>::same, Policies...> <= 1)),
                "synchronize: two rules of one type, of unused, averaging, division, use_counts, joined_ranks and "
                "parameters");
  return {.unused_gradients = pick_policy<is_rule<unused>::same>(unused::strict, policies...),
          .average = pick_policy<is_rule<averaging>::same>(averaging::mean, policies...),
          .divide = pick_policy<is_rule<division>::same>(division::after, policies...),
          .uses = pick_policy<is_rule<use_counts>::same>(use_counts::declared, policies...),
          .joined = pick_policy<is_rule<joined_ranks>::same>(joined_ranks::counted, policies...),
          .values = pick_policy<is_rule<parameters>::same>(parameters{}, policies...)};
}

/// The backend and the policies with their options, and the rules: what ranks have to choose alike.
template <class Backend, class Bucketing, class Compression, class Overlap>
description describe_choices(const Backend& backend, const Bucketing& bucketing, const Compression& compression,
                             const Overlap& overlap, const step_rules& rules) {
  description said;
  said.nest("backend", backend);
  said.nest("bucketing", bucketing);
  said.nest("compression", compression);
  said.nest("overlap", overlap);
  rules.describe(said);
  return said;
}

/// The policy with what the environment says in place of its own options, where it listens to the environment.
template <class Policy>
Policy honour_environment(Policy policy) {
  if constexpr (environment_aware<Policy>) {
    return policy.with_environment();
  } else {
    return policy;
  }
}

}  // namespace gradweave::detail
