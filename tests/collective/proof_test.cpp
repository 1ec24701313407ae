#include <gradweave/collective/proof.hpp>

#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/collective/composed.hpp>
#include <gradweave/collective/direct.hpp>
#include <gradweave/collective/halving_doubling.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/recursive_doubling.hpp>
#include <gradweave/collective/ring.hpp>
#include <gradweave/collective/select.hpp>
#include <gradweave/collective/shared.hpp>
#include <gradweave/collective/tree.hpp>

#include "tests/support/schedules.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// One thing changed in a schedule.
struct mutation {
  std::size_t step;
  enum { drop, repeat, redirect, shift, drop_first_dependency, drop_last_dependency } what;
};

schedule mutated(schedule plan, const mutation& change, int size) {
  schedule_step& step = plan.steps()[change.step];
  switch (change.what) {
    case mutation::drop:
      step.kind = step_kind::copy;
      step.source = step.target = {};
      step.sources_count = step.targets_count = 0;
      break;
    case mutation::repeat: {
      const schedule_step again = step;
      const auto last = static_cast<schedule::index>(plan.steps().size() - 1);
      switch (again.kind) {
        case step_kind::send: plan.send(again.peer, again.source, {last}); break;
        case step_kind::receive: plan.receive(again.peer, again.target, {last}); break;
        case step_kind::receive_reduce: plan.receive_reduce(again.peer, again.target, {last}); break;
        case step_kind::copy: plan.copy(again.source, again.target, {last}); break;
        case step_kind::divide: plan.divide(again.target, {last}); break;
        case step_kind::reduce:
          plan.reduce(std::vector(plan.sources(again).begin(), plan.sources(again).end()),
                      std::vector(plan.targets(again).begin(), plan.targets(again).end()), again.divides, {last});
          break;
        case step_kind::lend:
          plan.lend_to_update(again.peer, again.target.count != 0 ? again.target : again.source);
          break;
        case step_kind::give_back: plan.give_back(again.peer, {last}); break;
      }
      break;
    }
    case mutation::redirect: step.peer = (step.peer + 1) % size; break;
    case mutation::shift: (step.target.count != 0 ? step.target : step.source).begin += 1; break;
    case mutation::drop_first_dependency:
      ++step.dependencies_begin;
      --step.dependencies_count;
      break;
    case mutation::drop_last_dependency: --step.dependencies_count; break;
  }
  return plan;
}

void every_mutation_is_caught(int size, const collective_claim& claim, const std::vector<schedule>& ranks) {
  REQUIRE(prove(ranks, claim).holds());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto check = [&](const mutation& change) {
      auto changed = ranks;
      changed[rank] = mutated(ranks[rank], change, size);
      CAPTURE(size);
      CAPTURE(rank);
      CAPTURE(change.step);
      CAPTURE(static_cast<int>(change.what));
      CHECK_FALSE(prove(changed, claim).holds());
    };
    for (std::size_t i = 0; i < ranks[rank].steps().size(); ++i) {
      const schedule_step& step = ranks[rank].steps()[i];
      check({i, mutation::drop});
      if (step.source.count + step.target.count != 0) {
        check({i, mutation::shift});
      }
      const bool copies = step.kind == step_kind::copy || (step.kind == step_kind::reduce && step.sources_count == 1);
      if (!copies) {  // copying the same twice changes nothing
        check({i, mutation::repeat});
      }
      if (step.peer >= 0) {
        check({i, mutation::redirect});
      }
      if (step.dependencies_count != 0) {
        check({i, mutation::drop_first_dependency});
        check({i, mutation::drop_last_dependency});
      }
    }
  }
}

/// Of the schedules that `one(rank, schedule&)` makes.
template <class One>
void every_mutation_of(int size, const collective_claim& claim, One&& one) {
  every_mutation_is_caught(size, claim,
                           schedules_of_all(size, [&](schedule_world world, schedule& out) { one(world.rank, out); }));
}

}  // namespace

TEST_CASE("proof: catches any step of a ring all-reduce that is dropped, shifted, repeated, redirected or unordered") {
  for (const int size : {2, 3, 4, 5}) {
    std::vector<std::size_t> pieces;
    cut_evenly(static_cast<std::size_t>(size) * 16, size, pieces);
    every_mutation_is_caught(
        size, {.operation = collective::all_reduce, .elements = pieces.back()},
        schedules_of_all(size, [&](schedule_world world, schedule& out) { ring_all_reduce(world, pieces, out); }));
  }
}

TEST_CASE("proof: catches the same in reduce-scatter, all-gather, all-to-all and broadcast") {
  for (const int size : {2, 3, 4}) {
    std::vector<std::size_t> pieces;
    cut_evenly(static_cast<std::size_t>(size) * 16, size, pieces);
    every_mutation_is_caught(
        size, {.operation = collective::reduce_scatter, .pieces = for_all(size, pieces)},
        schedules_of_all(size, [&](schedule_world world, schedule& out) { ring_reduce_scatter(world, pieces, out); }));
    every_mutation_is_caught(
        size, {.operation = collective::all_gather, .pieces = for_all(size, pieces)},
        schedules_of_all(size, [&](schedule_world world, schedule& out) { ring_all_gather(world, pieces, out); }));
    every_mutation_is_caught(
        size,
        {.operation = collective::all_to_all, .pieces = for_all(size, pieces), .source_pieces = for_all(size, pieces)},
        schedules_of_all(
            size, [&](schedule_world world, schedule& out) { pairwise_all_to_all(world, pieces, pieces, out); }));
    every_mutation_is_caught(
        size, {.operation = collective::broadcast, .root = 1, .elements = 50},
        schedules_of_all(size, [&](schedule_world world, schedule& out) { chain_broadcast(world, 1, 50, 20, out); }));
  }
}

TEST_CASE("proof: catches the same in the other all-reduces") {
  for (const int size : {2, 3, 4, 6}) {
    const std::size_t count = 64 * static_cast<std::size_t>(size);
    const collective_claim claim{.operation = collective::all_reduce, .elements = count};
    every_mutation_is_caught(size, claim, schedules_of_all(size, [&](schedule_world world, schedule& out) {
                               recursive_doubling_all_reduce(world, count, out);
                             }));
    std::vector<std::size_t> pieces;
    cut_evenly(count, folded_world({0, size}).size(), pieces);
    every_mutation_is_caught(size, claim, schedules_of_all(size, [&](schedule_world world, schedule& out) {
                               halving_doubling_all_reduce(world, pieces, out);
                             }));
    cut_evenly(count, size, pieces);
    direct_schedules direct;
    every_mutation_is_caught(size, claim, schedules_of_all(size, [&](schedule_world world, schedule& out) {
                               direct.all_reduce(world, pieces, out);
                             }));
    shared_schedules shared;
    const auto members = all_members(size);
    every_mutation_is_caught(size, claim, schedules_of_all(size, [&](schedule_world world, schedule& out) {
                               shared.all_reduce(members, world.rank, pieces, out);
                             }));
    hierarchical_schedules hierarchical;
    std::vector<int> hosts;
    for (int rank = 0; rank < size; ++rank) {
      hosts.push_back(2 * rank / size);
    }
    const rank_groups groups(hosts);
    every_mutation_is_caught(size, claim, schedules_of_all(size, [&](schedule_world world, schedule& out) {
                               hierarchical.all_reduce(groups, world.rank, count, out);
                             }));
  }
}

TEST_CASE("proof: catches the same where memory is shared, and in a tree") {
  for (const int size : {2, 3, 4}) {
    const auto members = all_members(size);
    std::vector<std::size_t> pieces;
    cut_evenly(static_cast<std::size_t>(size) * 16, size, pieces);
    const auto rows = for_all(size, pieces);
    shared_schedules make;
    const auto check = [&](const collective_claim& claim, auto&& one) { every_mutation_of(size, claim, one); };
    check({.operation = collective::reduce_scatter, .pieces = rows},
          [&](int rank, schedule& out) { make.reduce_scatter(members, rank, pieces, out); });
    check({.operation = collective::all_gather, .pieces = rows},
          [&](int rank, schedule& out) { make.all_gather(members, rank, pieces, out); });
    check({.operation = collective::all_to_all, .pieces = rows, .source_pieces = rows},
          [&](int rank, schedule& out) { make.all_to_all(members, rank, pieces, pieces, out); });
    check({.operation = collective::gather, .root = 1, .pieces = rows},
          [&](int rank, schedule& out) { shared_schedules::gather(members, rank, 1, pieces, out); });
    check({.operation = collective::broadcast, .root = 1, .elements = 50},
          [&](int rank, schedule& out) { shared_schedules::broadcast(members, rank, 1, 50, out); });
    check({.operation = collective::barrier},
          [&](int rank, schedule& out) { shared_schedules::barrier(members, rank, out); });
    check({.operation = collective::broadcast, .root = 1, .elements = 50},
          [&](int rank, schedule& out) { binomial_broadcast({rank, size}, 1, 50, out); });
    check({.operation = collective::gather, .root = 1, .pieces = rows},
          [&](int rank, schedule& out) { pairwise_gather({rank, size}, 1, pieces, out); });
  }
}

TEST_CASE("proof: catches the same where collectives are composed over hosts") {
  for (const std::vector<int>& hosts : {std::vector{0, 0, 1, 1, 1}, std::vector{0, 1, 0, 1}}) {
    const auto size = static_cast<int>(hosts.size());
    const rank_groups groups(hosts);
    std::vector<std::size_t> pieces;
    cut_evenly(static_cast<std::size_t>(size) * 16, size, pieces);
    const auto rows = for_all(size, pieces);
    composed_schedules make;
    const auto check = [&](const collective_claim& claim, auto&& one) { every_mutation_of(size, claim, one); };
    check({.operation = collective::reduce_scatter, .pieces = rows},
          [&](int rank, schedule& out) { make.reduce_scatter(groups, rank, pieces, out); });
    check({.operation = collective::all_gather, .pieces = rows},
          [&](int rank, schedule& out) { make.all_gather(groups, rank, pieces, out); });
    check({.operation = collective::all_to_all, .pieces = rows, .source_pieces = rows},
          [&](int rank, schedule& out) { make.all_to_all(groups, rank, pieces, pieces, out); });
    check({.operation = collective::gather, .root = 1, .pieces = rows},
          [&](int rank, schedule& out) { make.gather(groups, rank, 1, pieces, out); });
    for (const std::size_t tree_elements_max : {0U, 50U}) {
      check({.operation = collective::broadcast, .root = 1, .elements = 50},
            [&](int rank, schedule& out) { make.broadcast(groups, rank, 1, 50, tree_elements_max, 20, out); });
    }
  }
}

TEST_CASE("proof: a barrier in which a rank speaks before it has heard is caught") {
  const auto check = [](const std::vector<schedule>& ranks) {
    REQUIRE(prove(ranks, {.operation = collective::barrier}).holds());
    for (std::size_t i = 0; i < ranks[0].steps().size(); ++i) {
      const schedule_step& step = ranks[0].steps()[i];
      const bool speaks = step.kind == step_kind::send || step.kind == step_kind::give_back;
      for (const auto what : {mutation::drop, mutation::drop_first_dependency}) {
        if (what == mutation::drop || (speaks && step.dependencies_count != 0)) {
          CAPTURE(i);
          auto changed = ranks;
          changed[0] = mutated(ranks[0], {i, what}, static_cast<int>(ranks.size()));
          CHECK_FALSE(prove(changed, {.operation = collective::barrier}).holds());
        }
      }
    }
  };
  for (const int size : {4, 8}) {  // where the size is no power of two, some of the orderings are not needed
    check(schedules_of_all(size, [](schedule_world world, schedule& out) { dissemination_barrier(world, out); }));
  }
  composed_schedules make;
  const rank_groups groups(std::vector{0, 0, 1, 1, 1, 2, 3});
  check(schedules_of_all(7, [&](schedule_world world, schedule& out) { make.barrier(groups, world.rank, out); }));
}

TEST_CASE("proof: two ranks that both receive before they send are a deadlock") {
  const operand whole{operand_buffer::data, 0, 8};
  auto ranks = schedules_of_all(2, [&](schedule_world world, schedule& out) {
    const auto received = out.receive(1 - world.rank, {operand_buffer::scratch, 0, 8});
    out.send(1 - world.rank, whole, {received});
  });
  const proof result = prove(ranks, {.operation = collective::all_reduce, .elements = 8});
  CHECK(result.fault.starts_with("deadlock"));
}

TEST_CASE("proof: a send and a receive of different length are told apart from a deadlock") {
  auto ranks = schedules_of_all(2, [&](schedule_world world, schedule& out) {
    if (world.rank == 0) {
      out.send(1, {operand_buffer::data, 0, 8});
    } else {
      out.receive(0, {operand_buffer::data, 0, 7});
    }
  });
  const proof result = prove(ranks, {.operation = collective::broadcast, .root = 0, .elements = 8});
  CHECK(result.fault == "rank 0 sends 8 elements where rank 1 receives 7");
}
