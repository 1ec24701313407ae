#include <gradweave/collective/algorithm.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("all_reduce_algorithm: every name leads back to its algorithm, and no other does") {
  for (const std::string_view name : algorithm_names) {
    REQUIRE(algorithm_named(name));
    CHECK(to_string(*algorithm_named(name)) == name);
  }
  CHECK_FALSE(algorithm_named("rings"));
  CHECK_FALSE(algorithm_named(""));
}

TEST_CASE("choose_by_messages: few rounds for little, few bytes for much") {
  CHECK(choose_by_messages(4, 4096) == all_reduce_algorithm::recursive_doubling);
  CHECK(choose_by_messages(4, 256 << 10) == all_reduce_algorithm::halving_doubling);
  CHECK(choose_by_messages(3, 256 << 10) == all_reduce_algorithm::ring);
  CHECK(choose_by_messages(4, 25 << 20) == all_reduce_algorithm::ring);
}

TEST_CASE("choose_by_messages: the more ranks, the longer a ring takes to come round") {
  CHECK(choose_by_messages(64, 4 << 20) == all_reduce_algorithm::halving_doubling);
  CHECK(choose_by_messages(63, 512 << 10) == all_reduce_algorithm::halving_doubling);
  CHECK(choose_by_messages(1000, 100 << 20) == all_reduce_algorithm::ring);
}

TEST_CASE("choose_by_messages: one rank and no bytes have an algorithm, too") {
  CHECK(choose_by_messages(1, 1 << 20) == all_reduce_algorithm::recursive_doubling);
  CHECK(choose_by_messages(4, 0) == all_reduce_algorithm::recursive_doubling);
}

TEST_CASE("elements_sent: 2 (N-1) a buffer, and for recursive doubling N log2 N and twice what is folded") {
  CHECK(elements_sent(all_reduce_algorithm::ring, 4, 100) == 600);
  CHECK(elements_sent(all_reduce_algorithm::halving_doubling, 5, 100) == 800);
  CHECK(elements_sent(all_reduce_algorithm::recursive_doubling, 4, 100) == 800);
  CHECK(elements_sent(all_reduce_algorithm::recursive_doubling, 5, 100) == 1000);
  CHECK(elements_sent(all_reduce_algorithm::recursive_doubling, 1, 100) == 0);
}
