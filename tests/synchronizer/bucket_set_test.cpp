#include <gradweave/synchronizer/bucket_set.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/none.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("bucket_set: neighbours in the arena coalesce, and a bucket is complete with its last member") {
  std::vector<float> a(4), b(5), c(6);
  manifest gradients;
  gradients.add("a", a);
  gradients.add("b", b);
  gradients.add("c", c);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(256);
  table.place(lay_out_arena(table.entries()), arena.data());
  bucket_set<compression::none::program> buckets;
  buckets.adopt({{{slot{2}, slot{1}}, {slot{0}}}}, table, compression::none{}, {0, 2, 2});
  REQUIRE(buckets.size() == 2);
  CHECK(buckets.version() == 1);
  CHECK(buckets[0].elements == 11);
  CHECK(buckets[0].memory.size() == 1);
  CHECK(buckets[0].members[1].begin == 6);

  buckets.begin_step();
  CHECK_FALSE(buckets.count_down({1}));
  CHECK_FALSE(buckets[0].complete());
  CHECK(buckets.count_down({2}));
  CHECK(buckets.count_down({0}));
  CHECK(buckets[1].complete());
}

TEST_CASE("bucket_set: slices of a slot are ready together, and all of it is there with the last") {
  std::vector<float> large(2 * slice_granule_elements + 7), small(5);
  manifest gradients;
  gradients.add("large", large);
  gradients.add("small", small);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(4 * large.size() + 256);
  table.place(lay_out_arena(table.entries()), arena.data());
  bucket_set<compression::none::program> buckets;
  buckets.adopt({{{slot{0}}, {slot{1}, slot{0}}}}, table, compression::none{}, {0, 2, 2});
  CHECK(buckets[0].elements == slice_granule_elements);
  const bucket_member& rest = buckets[1].members[1];
  CHECK(rest.begin == 5);
  CHECK(rest.slot_begin == slice_granule_elements);
  CHECK(rest.elements == slice_granule_elements + 7);
  CHECK(buckets[1].memory[1].memory == buckets[0].memory[0].memory + buckets[0].bytes());
  CHECK(buckets.last_bucket_of({0}) == 1);

  buckets.begin_step();
  CHECK(buckets.count_down({0}));
  CHECK(buckets[0].complete());
  CHECK_FALSE(buckets[1].complete());
  CHECK(buckets.count_down({1}));
  CHECK(buckets[1].complete());
  CHECK(buckets[1].completed() >= buckets[0].completed());
}
