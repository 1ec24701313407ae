/// @file
/// Picks policies out of an argument list by the concept that they model, in any order.
#pragma once

#include <cstddef>
#include <utility>

#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/overlap/concept.hpp>

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
concept any_policy = is_bucketing<Policy>::value || is_compression<Policy>::value || is_overlap<Policy>::value;

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
