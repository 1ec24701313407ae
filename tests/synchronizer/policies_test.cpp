#include <gradweave/synchronizer/policies.hpp>

#include <concepts>

#include <doctest/doctest.h>

#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/overlap/blocking.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("pick_policy: finds a policy wherever it stands, and falls back where there is none") {
  const auto picked = pick_policy<is_bucketing>(bucketing::fixed_bytes{}, overlap::blocking{}, compression::fp16{},
                                                bucketing::per_tensor{});
  static_assert(std::same_as<decltype(picked), const bucketing::per_tensor>);
  const auto fallback = pick_policy<is_overlap>(overlap::blocking{}, compression::fp16{});
  static_assert(std::same_as<decltype(fallback), const overlap::blocking>);
  static_assert(any_policy<compression::fp16> && any_policy<compression::none> && !any_policy<int>);
  static_assert(count_policies<is_compression, compression::fp16, overlap::blocking, compression::none> == 2);
}
