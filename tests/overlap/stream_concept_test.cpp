#include <gradweave/overlap/stream_concept.hpp>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_stream_overlap<gt::stream_overlap_archetype>());
static_assert(!gw::overlap_makes_device<gt::overlap_archetype> && !gw::stream_overlap_policy<gt::overlap_archetype>);

namespace {

struct deadline_is_a_number : gt::stream_overlap_archetype {
  using stream_overlap_archetype::stream_overlap_archetype;
  int deadline() const { return 1; }
};
static_assert(!gw::overlap_has_deadline<deadline_is_a_number> && !gw::stream_overlap_policy<deadline_is_a_number>);

}  // namespace
