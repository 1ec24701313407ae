// EXPECT: backend: split\(int colour, int key\) must exist and return std::optional of the backend
#include <gradweave/testing/archetypes.hpp>

static_assert(gradweave::explain_splitting_backend<gradweave::testing::host_backend_archetype>());
