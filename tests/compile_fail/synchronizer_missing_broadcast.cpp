// EXPECT: synchronizer: the backend must offer all_gather and broadcast; the step record and the manifest's comparison travel by them
#include <gradweave/synchronizer.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

struct only_gathers : gt::host_backend_archetype {
  static constexpr gw::collective_set capabilities = {gw::collective::all_gather};
};

using no_broadcast =
    gw::synchronizer<only_gathers, gt::bucketing_archetype, gt::compression_archetype, gt::overlap_archetype>;
int size = sizeof(no_broadcast);
