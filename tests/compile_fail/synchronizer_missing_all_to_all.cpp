// EXPECT: synchronizer: the backend lacks a collective that the compression policy needs; choose another compression, or another backend
#include <gradweave/gradweave.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;

// It offers all_gather and broadcast, no all_to_all.
void two_phase(gw::manifest gradients) {
  (void)gw::synchronize(std::move(gradients), gw::testing::host_backend_archetype{}, gw::compression::bf16{});
}
