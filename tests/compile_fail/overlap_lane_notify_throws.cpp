// EXPECT: overlap: make_lane\(work\) must be const and return a lane: notify\(\) noexcept, drain\(\)
#include <gradweave/testing/archetypes.hpp>

struct throwing_lane {
  void notify() {}
  void drain() {}
};
struct throws_from_notify : gradweave::testing::policy_archetype {
  template <gradweave::lane_work Work>
  throwing_lane make_lane(Work&) const {
    return {};
  }
};

static_assert(gradweave::explain_overlap<throws_from_notify>());
