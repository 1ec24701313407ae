#include <gradweave/one_of.hpp>

#include <concepts>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/compression/all_reduce.hpp>
#include <gradweave/compression/half.hpp>
#include <gradweave/compression/none.hpp>
#include <gradweave/overlap/blocking.hpp>
#include <gradweave/overlap/progress_thread.hpp>
#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/overlap_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;
using gw::one_of;

namespace {

using any_bucketing = one_of<gw::bucketing::per_tensor, gw::bucketing::fixed_bytes, gw::bucketing::ready_order>;
using any_compression = one_of<gw::compression::none, gw::compression::fp16, gw::compression::bf16>;
using any_overlap = one_of<gw::overlap::blocking, gw::overlap::progress_thread>;

static_assert(gw::bucketing_policy<any_bucketing> && !gw::compression_policy<any_bucketing>);
static_assert(gw::compression_policy<any_compression> && !gw::overlap_policy<any_compression>);
static_assert(gw::overlap_policy<any_overlap> && !gw::bucketing_policy<any_overlap>);
static_assert(gw::environment_aware<any_bucketing>);

// The archetypes do: nothing is needed beyond the concepts.
static_assert(gw::bucketing_policy<one_of<gt::bucketing_archetype>>);
static_assert(gw::overlap_policy<one_of<gt::overlap_archetype>>);
static_assert(gw::compression_policy<one_of<gt::compression_archetype, gt::codec_archetype>>);

// It asks for what any of its alternatives may ask for, and no more.
static_assert(any_compression::collectives.contains(gw::collective::all_to_all));
static_assert(!one_of<gw::compression::per_hop_rounding>::collectives.contains(gw::collective::all_to_all));

// Only its alternatives turn into it.
static_assert(std::convertible_to<gw::bucketing::per_tensor, any_bucketing>);
static_assert(!std::convertible_to<gw::overlap::blocking, any_bucketing>);
static_assert(!std::convertible_to<int, any_compression>);

}  // namespace

TEST_CASE("one_of: a bucketing policy does what the held one does") {
  const std::vector<gw::slot_size> slots(5, {gw::element_kind::float32, 8});
  const gw::bucketing_input input{slots, {}};
  CHECK(any_bucketing(gw::bucketing::per_tensor{}).plan(input) == gw::bucketing::per_tensor{}.plan(input));
  const gw::bucketing::fixed_bytes fixed{{16, 8}};
  CHECK(any_bucketing(fixed).plan(input) == fixed.plan(input));
  CHECK(!any_bucketing(fixed).replans_after(0));
  CHECK(any_bucketing(gw::bucketing::ready_order{}).replans_after(0));
  CHECK(any_bucketing(fixed) == any_bucketing(fixed));
  CHECK(any_bucketing(fixed) != any_bucketing(gw::bucketing::fixed_bytes{}));
  CHECK(any_bucketing(fixed) != any_bucketing(gw::bucketing::ready_order{{16, 8}}));
  CHECK(gt::entries_of(any_bucketing(fixed)) == gt::entries_of(fixed));
}

TEST_CASE("one_of: a compression policy does what the held one does") {
  const any_compression none = gw::compression::none{};
  const any_compression fp16 = gw::compression::fp16{};
  CHECK(!none.compresses(gw::element_kind::float32));
  CHECK(fp16.compresses(gw::element_kind::float32));
  CHECK(!fp16.compresses(gw::element_kind::float64));
  CHECK(none != fp16);
  CHECK(fp16 != any_compression(gw::compression::bf16{}));
  CHECK(gt::entries_of(fp16) == gt::entries_of(gw::compression::fp16{}));
  const gw::bucket_member member{{}, 0, 100};
  const gw::bucket_layout layout{gw::element_kind::float32, 100, {&member, 1}, {}};
  CHECK(none.prepare(layout, {0, 2}).scratch_bytes() == 0);
  CHECK(fp16.prepare(layout, {0, 2}).scratch_bytes() >= 200);
}

TEST_CASE("one_of: an overlap policy makes the held one's lane") {
  const gt::watchdog guard("one_of: an overlap policy makes the held one's lane");
  for (const any_overlap& policy :
       {any_overlap(gw::overlap::blocking{}), any_overlap(gw::overlap::progress_thread{})}) {
    gt::lane_probe probe(1);
    auto lane = policy.make_lane(probe);
    probe.begin_step();
    probe.complete(0);
    lane.notify();
    probe.close_step();
    lane.drain();
    CHECK(probe.finished());
    CHECK(probe.reduced()[0] == 1);
  }
  CHECK(any_overlap(gw::overlap::blocking{}) != any_overlap(gw::overlap::progress_thread{}));
}

TEST_CASE("one_of: the environment reaches the held policy") {
  ::setenv("DISTRIBUTED_BUCKET_SIZE", "2", 1);
  const any_bucketing fixed = any_bucketing(gw::bucketing::fixed_bytes{}).with_environment();
  const any_bucketing each = any_bucketing(gw::bucketing::per_tensor{}).with_environment();
  ::unsetenv("DISTRIBUTED_BUCKET_SIZE");
  CHECK(fixed == any_bucketing(gw::bucketing::fixed_bytes{{std::size_t{2} << 20, std::size_t{1} << 20}}));
  CHECK(each == any_bucketing(gw::bucketing::per_tensor{}));
}
