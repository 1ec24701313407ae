// EXPECT: bucketing: the policy must be copyable
// EXPECT: bucketing: the policy must have ==
// EXPECT: bucketing: describe\(description&\) must exist and be const
// EXPECT: bucketing: plan\(const bucketing_input&\) must be const and return bucket_plan
// EXPECT: bucketing: replans_after\(std::uint64_t\) must be const and return bool
#include <gradweave/bucketing/concept.hpp>

struct nothing {
  nothing(const nothing&) = delete;
};

static_assert(gradweave::explain_bucketing<nothing>());
