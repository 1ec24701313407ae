#include <gradweave/synchronizer/use_check.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/none.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("fault_of_uses: names the first bucket that lacks gradients, all that lack, and how often they were used") {
  std::vector<float> a(4), b(5), c(6);
  manifest gradients;
  gradients.add("a", a);
  gradients.add("b", b, uses{3});
  gradients.add("c", c);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(256);
  table.place(lay_out_arena(table.entries()), arena.data());
  bucket_set<compression::none::program> buckets;
  buckets.adopt({{{slot{2}, slot{1}}, {slot{0}}}}, table, compression::none{}, {0, 2, 2});
  table.begin_step();
  buckets.begin_step();
  CHECK(table.mark_used({2}, true));
  buckets.count_down({2});
  CHECK_FALSE(table.mark_used({1}, true));
  CHECK_FALSE(table.mark_used({1}, true));
  for (const bool counted : {true, false}) {
    const auto strict = fault_of_uses(table, buckets, unused::strict, counted);
    REQUIRE(strict);
    CHECK(strict->bucket == 0);
    CHECK(strict->slots == std::vector<std::string>{"b", "a"});
    CHECK(strict->detail.find("'b' was so 2 of 3 times") != std::string::npos);
    const auto filling = fault_of_uses(table, buckets, unused::zero_fill, counted);
    REQUIRE(filling);
    CHECK(filling->slots == std::vector<std::string>{"b"});
  }
  CHECK(table.mark_used({1}, true));
  buckets.count_down({1});
  CHECK_FALSE(fault_of_uses(table, buckets, unused::zero_fill, true));
}

TEST_CASE("fault_of_uses: a slot in slices is named once, in the bucket of its first slice") {
  std::vector<float> large(3 * slice_granule_elements), small(2);
  manifest gradients;
  gradients.add("large", large);
  gradients.add("small", small);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(4 * large.size() + 256);
  table.place(lay_out_arena(table.entries()), arena.data());
  bucket_set<compression::none::program> buckets;
  buckets.adopt({{{slot{1}}, {slot{0}}, {slot{0}}, {slot{0}}}}, table, compression::none{}, {0, 2, 2});
  table.begin_step();
  buckets.begin_step();
  table.mark_used({1}, true);
  buckets.count_down({1});
  for (const bool counted : {true, false}) {
    const auto fault = fault_of_uses(table, buckets, unused::strict, counted);
    REQUIRE(fault);
    CHECK(fault->bucket == 1);
    CHECK(fault->slots == std::vector<std::string>{"large"});
  }
}
