#include <gradweave/testing/archetypes.hpp>

#include <cstdint>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/synchronizer.hpp>
#include <gradweave/testing/bucketing_conformance.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/overlap_conformance.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

TEST_CASE("archetypes: a synchronizer requires no more of its policies than the concepts do") {
  gt::element_archetype memory;
  gt::tensor_archetype tensor(memory);
  gw::manifest gradients;
  const gw::slot only = gradients.add("only", tensor);
  gw::synchronizer<gt::host_backend_archetype, gt::bucketing_archetype, gt::compression_archetype,
                   gt::overlap_archetype>
      sync(std::move(gradients), {}, gt::bucketing_archetype(0), gt::compression_archetype(0),
           gt::overlap_archetype(0));
  for (int step = 0; step < 3; ++step) {
    memory.bits = 0x3f80'0000U;
    const gw::step_result result = sync.step([&](auto& current) { current.ready(only); });
    CHECK(result.step == static_cast<std::uint64_t>(step));
    CHECK(memory.bits == 0x3f80'0000U);
  }
  CHECK(sync.plan().buckets.size() == 1);
}

TEST_CASE("archetypes: each says of itself that it is one") {
  CHECK(gt::entries_of(gt::backend_archetype{}).front().value == "archetype");
  CHECK(gt::entries_of(gt::host_backend_archetype{}).front().value == "archetype");
  CHECK(gt::check_description({gt::codec_archetype(0)}).passed());
  CHECK(gt::check_description({gt::compression_archetype(0)}).passed());
}

TEST_CASE("archetypes: bucketing and overlap pass their kits") {
  const auto bucketing = gt::check_bucketing(gt::bucketing_archetype(0));
  CHECK_MESSAGE(bucketing.passed(), gt::to_string(bucketing));
  const auto overlap = gt::check_overlap(gt::overlap_archetype(0));
  CHECK_MESSAGE(overlap.passed(), gt::to_string(overlap));
}

TEST_CASE("archetypes: the transport keeps the first cause of an abort") {
  gt::transport_archetype transport;
  CHECK(transport.aborted() == nullptr);
  CHECK(transport.abort({gw::errc::aborted, 0, -1, -1, {}, "first"}).detail == "first");
  CHECK(transport.abort({gw::errc::aborted, 0, -1, -1, {}, "second"}).detail == "first");
  CHECK(transport.aborted()->detail == "first");
}
