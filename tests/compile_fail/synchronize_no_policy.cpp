// EXPECT: synchronize: an argument after the backend is no policy; pass bucketing, compression \(or a codec\) and overlap policies, and rules such as unused::zero_fill, in any order
// EXPECT: bucketing: plan\(const bucketing_input&\) must be const and return bucket_plan
// EXPECT: codec: encode\(span<const float>, span<byte>\) must be const and return std::size_t, the number of values that are not finite
// EXPECT: compression: prepare\(const bucket_layout&, program_world\) must be const and return a stage_program
// EXPECT: overlap: make_lane\(work\) must be const and return a lane: notify\(\) noexcept, drain\(\)
#include <utility>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

struct plans_not_const : gt::bucketing_archetype {
  using gt::bucketing_archetype::bucketing_archetype;
  gw::bucket_plan plan(const gw::bucketing_input&) { return {}; }
};
struct does_not_count : gt::codec_archetype {
  using gt::codec_archetype::codec_archetype;
  void encode(std::span<const float>, std::span<std::byte>) const {}
};
struct prepares_nothing : gt::compression_archetype {
  using gt::compression_archetype::compression_archetype;
  void prepare(const gw::bucket_layout&, gw::program_world) const {}
};
struct makes_no_lane : gt::overlap_archetype {
  using gt::overlap_archetype::overlap_archetype;
  template <gw::lane_work Work>
  int make_lane(Work&) const {
    return 0;
  }
};

void synchronize(gw::manifest gradients, gw::backend::loopback backend) {
  (void)gw::synchronize(std::move(gradients), std::move(backend), 42, plans_not_const(0), does_not_count(0),
                        prepares_nothing(0), makes_no_lane(0));
}
