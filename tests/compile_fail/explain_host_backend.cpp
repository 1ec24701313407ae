// EXPECT: backend: a host backend needs start\(const collective_request&\)
// EXPECT: backend: a host backend needs poll\(\), returning bool
// EXPECT: backend: a host backend needs wait\(\)
#include <gradweave/testing/archetypes.hpp>

struct cannot_start : gradweave::testing::host_backend_archetype {
  void start() {}
};
struct poll_is_void : gradweave::testing::host_backend_archetype {
  void poll() {}
};
struct cannot_wait : gradweave::testing::host_backend_archetype {
  void wait(int) {}
};

static_assert(gradweave::explain_backend<cannot_start>());
static_assert(gradweave::explain_backend<poll_is_void>());
static_assert(gradweave::explain_backend<cannot_wait>());
