// EXPECT: backend: rank\(\) and size\(\) must exist and return int
// EXPECT: backend: payload_bytes_sent\(\) must exist and return std::uint64_t
// EXPECT: backend: a host backend needs poll\(\), returning bool
// EXPECT: backend: a stream backend needs enqueue\(const collective_request&, stream\)
#include <utility>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

struct does_not_poll : gt::host_backend_archetype {
  void poll() {}
};

void synchronize(gw::manifest gradients) {
  (void)gw::synchronize(std::move(gradients), 42);
  (void)gw::synchronize(std::move(gradients), does_not_poll{});
  (void)gw::synchronize(std::move(gradients), gt::backend_archetype{});
}
