#include <gradweave/collective/host_symmetry.hpp>

#include <cstddef>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/collective/halving_doubling.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/recursive_doubling.hpp>
#include <gradweave/collective/ring.hpp>

using namespace gradweave;

namespace {

auto ring_of(std::size_t elements) {
  return [elements](schedule_world world, schedule& out) {
    std::vector<std::size_t> pieces;
    cut_evenly(elements, world.size, pieces);
    ring_all_reduce(world, pieces, out);
  };
}

}  // namespace

TEST_CASE("has_host_symmetry: a ring has it where its pieces are equal and hosts are") {
  CHECK(has_host_symmetry(host_topology::even(6, 1), ring_of(16 * 6)));
  CHECK(has_host_symmetry(host_topology::even(3, 2), ring_of(16 * 6)));
  CHECK_FALSE(has_host_symmetry(host_topology::even(3, 2), ring_of(16 * 6 + 1)));
  CHECK_FALSE(has_host_symmetry(host_topology({2, 3, 1}), ring_of(16 * 6)));
}

TEST_CASE("has_host_symmetry: lenders move with their hosts") {
  const host_topology topology = host_topology::even(3, 4);
  const rank_groups groups(topology.host_by_rank());
  hierarchical_schedules maker;
  CHECK(has_host_symmetry(
      topology, [&](schedule_world world, schedule& out) { maker.all_reduce(groups, world.rank, 16 * 12, out); }));
}

TEST_CASE("has_host_symmetry: neighbours by exclusive or are at no fixed distance") {
  const auto doubling = [](schedule_world world, schedule& out) { recursive_doubling_all_reduce(world, 64, out); };
  CHECK_FALSE(has_host_symmetry(host_topology::even(8, 1), doubling));
  CHECK_FALSE(has_host_symmetry(host_topology::even(1000, 2), doubling));
  const std::vector<std::size_t> pieces{0, 16, 32, 48, 64};
  CHECK(has_host_symmetry(host_topology::even(2, 2), [&](schedule_world world, schedule& out) {
    halving_doubling_all_reduce(world, pieces, out);  // of two hosts, there and back is the same
  }));
}

TEST_CASE("is_moved_by: dependencies, lengths, kinds and lenders count; where operands begin does not") {
  const auto made = [](int peer, std::size_t begin, std::size_t count, bool depends) {
    schedule plan;
    const schedule::index first = plan.receive(peer, {operand_buffer::data, begin, count});
    depends ? plan.divide({operand_buffer::data, begin, count}, {first})
            : plan.divide({operand_buffer::data, begin, count});
    return plan;
  };
  const schedule original = made(1, 0, 5, true);
  CHECK(is_moved_by(original, made(3, 7, 5, true), 2, 4));
  CHECK(is_moved_by(original, made(0, 7, 5, true), 3, 4));
  CHECK_FALSE(is_moved_by(original, made(2, 0, 5, true), 2, 4));
  CHECK_FALSE(is_moved_by(original, made(3, 0, 6, true), 2, 4));
  CHECK_FALSE(is_moved_by(original, made(3, 0, 5, false), 2, 4));
  CHECK_FALSE(is_moved_by(original, schedule(), 2, 4));
}

TEST_CASE("hosts_compared: all of few, and of many the nearest, the last and some between") {
  CHECK(hosts_compared(1).empty());
  CHECK(hosts_compared(4) == std::set<int>{1, 2, 3});
  CHECK(hosts_compared(64).size() == 63);
  CHECK(hosts_compared(1000) == std::set<int>{1, 2, 250, 500, 750, 999});
}
