#include <gradweave/collective/hierarchical.hpp>

#include <vector>

#include <doctest/doctest.h>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("rank_groups: numbers groups by their first rank and lists ranks in order") {
  const std::vector<int> hosts = {7, 3, 7, 3, 3};
  const rank_groups groups(hosts);
  CHECK(groups.count() == 2);
  CHECK(groups.group_of(0) == 0);
  CHECK(groups.group_of(4) == 1);
  CHECK(std::vector<int>(groups.members(1).begin(), groups.members(1).end()) == std::vector<int>{1, 3, 4});
  CHECK(groups.smallest() == 2);
}

TEST_CASE("hierarchical_schedules: the all-reduce is proved for hosts of even and uneven size") {
  hierarchical_schedules make;
  for (const int size : proved_sizes()) {
    auto layouts = std::vector<std::vector<int>>{{8}, {3, 1, 2}};
    if (size <= 128) {
      layouts.insert(layouts.end(), {{1}, {2}, {4, 4, 5}, {1000}});
    }
    for (const auto& host_sizes : layouts) {
      for (const std::size_t count : proved_counts(size)) {
        const rank_groups groups(hosts_of(size, host_sizes));
        CAPTURE(size);
        CAPTURE(host_sizes.front());
        CAPTURE(count);
        const proof result =
            check_proof(size, {.operation = collective::all_reduce, .elements = count},
                        [&](schedule_world world, schedule& out) { make.all_reduce(groups, world.rank, count, out); });
        CHECK(result.elements_sent == 2 * (groups.count() - 1) * count);
      }
    }
  }
}

TEST_CASE("hierarchical_schedules: ranks of a host need not be neighbours") {
  hierarchical_schedules make;
  const std::vector<int> hosts = {0, 1, 0, 2, 1, 0, 2};
  const rank_groups groups(hosts);
  const proof result =
      check_proof(7, {.operation = collective::all_reduce, .elements = 500},
                  [&](schedule_world world, schedule& out) { make.all_reduce(groups, world.rank, 500, out); });
}
