#include <gradweave/bucketing/fixed_bytes.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/testing/conformance.hpp>

#include "tests/support/environment.hpp"
#include "tests/support/plans.hpp"

namespace gw = gradweave;
using gw::element_kind;
using gw::bucketing::bucket_caps;
using gw::bucketing::fixed_bytes;
using gw::tests::indices;
using gw::tests::scoped_variable;

namespace {

std::vector<gw::slot_size> float32_slots(std::initializer_list<std::size_t> bytes) {
  std::vector<gw::slot_size> slots;
  for (const std::size_t each : bytes) {
    slots.push_back({element_kind::float32, each});
  }
  return slots;
}

using plan_of = std::vector<std::vector<std::uint32_t>>;

}  // namespace

TEST_CASE("fixed_bytes: 25 MiB a bucket, 1 MiB the first") {
  CHECK(fixed_bytes{}.caps.bucket_bytes_max == 26'214'400);
  CHECK(fixed_bytes{}.caps.first_bucket_bytes_max == 1'048'576);
  CHECK(fixed_bytes{} != fixed_bytes{{1, 1}});
}

TEST_CASE("fixed_bytes: a bucket is closed once it has reached its cap, so it overshoots") {
  const auto slots = float32_slots({60, 60, 60, 60, 60});
  CHECK(indices(fixed_bytes{{100, 100}}.plan({slots, {}})) == plan_of{{4, 3}, {2, 1}, {0}});
  CHECK(indices(fixed_bytes{{120, 120}}.plan({slots, {}})) == plan_of{{4, 3}, {2, 1}, {0}});
  CHECK(indices(fixed_bytes{{121, 121}}.plan({slots, {}})) == plan_of{{4, 3, 2}, {1, 0}});
  CHECK(indices(fixed_bytes{{1, 1}}.plan({slots, {}})) == plan_of{{4}, {3}, {2}, {1}, {0}});
  CHECK(indices(fixed_bytes{}.plan({slots, {}})) == plan_of{{4, 3, 2, 1, 0}});
}

TEST_CASE("fixed_bytes: the first bucket has a cap of its own, each element kind's") {
  auto slots = float32_slots({8, 8, 8, 8, 8});
  CHECK(indices(fixed_bytes{{16, 8}}.plan({slots, {}})) == plan_of{{4}, {3, 2}, {1, 0}});
  for (int i = 0; i < 5; ++i) {
    slots.push_back({element_kind::bfloat16, 8});
  }
  CHECK(indices(fixed_bytes{{16, 8}}.plan({slots, {}})) == plan_of{{9}, {8, 7}, {6, 5}, {4}, {3, 2}, {1, 0}});
}

TEST_CASE("fixed_bytes: kinds that alternate share no bucket, and buckets go in the order of their last slot") {
  std::vector<gw::slot_size> slots;
  for (std::size_t i = 0; i < 6; ++i) {
    slots.push_back({i % 2 == 0 ? element_kind::float32 : element_kind::float16, i % 2 == 0 ? 8U : 4U});
  }
  // Reversed: 5h 4f 3h 2f 1h 0f. float32 closes at 16 bytes, after slot 2; float16 at 16 only at the end, after slot 1.
  CHECK(indices(fixed_bytes{{16, 16}}.plan({slots, {}})) == plan_of{{4, 2}, {5, 3, 1}, {0}});
}

TEST_CASE("fixed_bytes: empty slots travel with their neighbours") {
  CHECK(indices(fixed_bytes{{8, 8}}.plan({float32_slots({0, 8, 0, 0}), {}})) == plan_of{{3, 2, 1}, {0}});
  CHECK(fixed_bytes{}.plan({{}, {}}).buckets.empty());
}

TEST_CASE("fixed_bytes: ignores what was observed and never plans anew") {
  const auto slots = float32_slots({4, 4});
  const std::vector<gw::ready_event> observed = {{gw::slot{0}, {}}, {gw::slot{1}, {}}};
  CHECK(fixed_bytes{}.plan({slots, observed}) == fixed_bytes{}.plan({slots, {}}));
  CHECK(!fixed_bytes{}.replans_after(0));
}

TEST_CASE("fixed_bytes: DISTRIBUTED_BUCKET_SIZE overrides the cap, in MiB") {
  const auto cap_of = [](const char* value) {
    const scoped_variable variable("DISTRIBUTED_BUCKET_SIZE", value);
    return fixed_bytes{{.bucket_bytes_max = 7, .first_bucket_bytes_max = std::size_t{1} << 20}}.with_environment().caps;
  };
  CHECK(cap_of(nullptr) == bucket_caps{7, std::size_t{1} << 20});
  CHECK(cap_of("2") == bucket_caps{std::size_t{2} << 20, std::size_t{1} << 20});
  CHECK(cap_of("25.0") == bucket_caps{std::size_t{25} << 20, std::size_t{1} << 20});
  CHECK(cap_of("1e1") == bucket_caps{std::size_t{10} << 20, std::size_t{1} << 20});
  CHECK(cap_of("0.5") == bucket_caps{std::size_t{1} << 19, std::size_t{1} << 20});
  CHECK(cap_of("1e-9") == bucket_caps{1, std::size_t{1} << 20});
  CHECK(cap_of("1048576") == bucket_caps{std::size_t{1} << 40, std::size_t{1} << 20});
}

TEST_CASE("fixed_bytes: the first bucket is never larger than the others, whatever its own cap") {
  const auto slots = float32_slots({4, 4, 4, 4, 4, 4});
  const auto plan = fixed_bytes{{.bucket_bytes_max = 8}}.plan({slots, {}});
  REQUIRE(plan.buckets.size() == 3);
  CHECK(plan.buckets[0].size() == 2);
}

TEST_CASE("fixed_bytes: a malformed DISTRIBUTED_BUCKET_SIZE is an error that quotes it") {
  for (const char* value : {"", "abc", "12x", "-1", "0", "-0", "nan", "inf", "-inf", "1e99", "1e999", "1048577", " 5",
                            "5 ", "+5", "0x10", "5,5", "5MiB", "1e-999"}) {
    CAPTURE(value);
    const scoped_variable variable("DISTRIBUTED_BUCKET_SIZE", value);
    try {
      (void)fixed_bytes{}.with_environment();
      FAIL_CHECK("it was taken");
    } catch (const gw::contract_violation& error) {
      const std::string said = error.what();
      CHECK(said.find("DISTRIBUTED_BUCKET_SIZE is '" + std::string(value) + "'") != std::string::npos);
      CHECK(said.find("MiB") != std::string::npos);
    }
    CHECK_THROWS_AS((void)gw::bucketing::ready_order{}.with_environment(), gw::contract_violation);
  }
}

TEST_CASE("fixed_bytes: describes its caps") {
  const auto said = gw::testing::entries_of(fixed_bytes{{12, 34}});
  REQUIRE(said.size() == 3);
  CHECK(said[0] == gw::description::entry{"name", "fixed_bytes"});
  CHECK(said[1] == gw::description::entry{"bucket_bytes_max", "12"});
  CHECK(said[2] == gw::description::entry{"first_bucket_bytes_max", "34"});
}
