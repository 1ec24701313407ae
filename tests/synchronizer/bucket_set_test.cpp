#include <gradweave/synchronizer/bucket_set.hpp>

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
