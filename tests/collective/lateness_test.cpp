#include <gradweave/collective/lateness.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("blame: who did not enter, before who stopped sending, before who stopped receiving") {
  std::vector<late_rank> late{{3, lateness::not_receiving}};
  CHECK(blame(late, "it").detail == "rank 3 stopped receiving in it");
  CHECK(blame(late, "it").rank == 3);
  late.push_back({2, lateness::not_sending});
  CHECK(blame(late, "it").detail == "rank 2 stopped sending in it");
  late.push_back({5, lateness::not_entered});
  late.push_back({4, lateness::not_entered});
  const failure cause = blame(late, "it");
  CHECK(cause.code == errc::timed_out);
  CHECK(cause.rank == 5);
  CHECK(cause.detail == "rank 5, rank 4 did not enter it");
  CHECK(blame({}, "it").rank == -1);
  CHECK(blame({}, "it").detail == "some rank takes no messages in it");
}
