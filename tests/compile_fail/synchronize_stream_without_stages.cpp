// EXPECT: compression: the policy has no stages for a stream, which a stream backend needs; choose none, fp16 or bf16
// EXPECT: overlap: a stream backend needs an overlap policy that makes its device: make_device\(\) must be const
#include <utility>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

void synchronize(gw::manifest gradients) {
  (void)gw::synchronize(std::move(gradients), gt::stream_backend_archetype{}, gt::compression_archetype(0),
                        gt::stream_overlap_archetype(0));
  (void)gw::synchronize(std::move(gradients), gt::stream_backend_archetype{});
}
