// EXPECT: backend: rank\(\) and size\(\) must exist and return int
// EXPECT: backend: add `static constexpr memory_space space`
// EXPECT: backend: add `static constexpr execution_model execution`
// EXPECT: backend: add `static constexpr collective_set capabilities`
// EXPECT: backend: allocate_arena\(bytes\) must return a movable owner whose data\(\) is std::byte\*
// EXPECT: backend: abort\(failure\) must exist and return the failure that came first
// EXPECT: backend: payload_bytes_sent\(\) must exist and return std::uint64_t
// EXPECT: backend: describe\(description&\) must exist and be const
// EXPECT: backend: it must be movable
#include <gradweave/backend/concept.hpp>

struct nothing {
  nothing(nothing&&) = delete;
};

static_assert(gradweave::explain_backend<nothing>());
