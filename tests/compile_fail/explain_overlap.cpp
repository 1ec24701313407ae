// EXPECT: overlap: the policy must be copyable
// EXPECT: overlap: the policy must have ==
// EXPECT: overlap: describe\(description&\) must exist and be const
// EXPECT: overlap: make_lane\(work\) must be const and return a lane: notify\(\) noexcept, drain\(\)
#include <gradweave/overlap/concept.hpp>

struct nothing {
  nothing(const nothing&) = delete;
};

static_assert(gradweave::explain_overlap<nothing>());
