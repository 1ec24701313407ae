#include <gradweave/collective/virtual_steps.hpp>

#include <array>
#include <cstddef>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/schedule.hpp>

using namespace gradweave;

namespace {

const cost_model costs{.between = {.alpha_s = 10, .overhead_s = 1, .gamma_s_per_byte = 2},
                       .within = {.alpha_s = 3, .overhead_s = 0.5, .gamma_s_per_byte = 4},
                       .divide_s_per_byte = 7};
constexpr operand whole{operand_buffer::data, 0, 5};
constexpr operand scratch{operand_buffer::scratch, 0, 5};

}  // namespace

TEST_CASE("virtual_steps: a send meets its receive, whose opening it waits for; steps of a channel follow each other") {
  const host_topology topology({1, 1});
  virtual_steps world(costs, topology, false, 4);
  schedule plan;
  plan.send(1, whole);
  plan.send(1, {operand_buffer::data, 0, 2});
  world.add(plan);
  plan.clear();
  const schedule::index first = plan.receive_reduce(0, whole);
  const schedule::index second = plan.receive(0, {operand_buffer::data, 0, 2});
  plan.divide(whole, {first, second});
  world.add(plan);
  world.finish();
  const auto steps = world.steps();
  REQUIRE(steps.size() == 5);
  CHECK(steps[0].partner == 2);
  CHECK(steps[3].partner == 1);
  CHECK(steps[0].next == 1);
  CHECK(steps[1].waits == 1);
  CHECK(steps[1].bytes == 8);
  CHECK(steps[2].work_s == 20 * 2);
  CHECK(steps[4].work_s == 20 * 7);
  CHECK(steps[4].waits == 2);
  CHECK(world.waiting_for(2).front().step == 4);
  CHECK(world.entered_s(1) == 1);
  CHECK(world.entered_s(0) == 0);
  CHECK(steps[0].opens_s == 10);
  CHECK(place_of(steps[2]) == "rank 1 step 0 (receive and reduce from rank 0)");
}

TEST_CASE("virtual_steps: of a host that stands for all, the neighbour ahead is met by the neighbour behind") {
  const host_topology topology = host_topology::even(5, 1);
  virtual_steps world(costs, topology, true, 4);
  schedule plan;
  plan.send(1, whole);
  plan.receive(4, scratch);
  world.add(plan);
  world.finish();
  CHECK(world.representatives() == 1);
  CHECK(world.steps()[0].partner == 1);
  CHECK(world.steps()[0].is_between);
}

TEST_CASE("virtual_steps: each further source and each further target of a reduction costs gamma") {
  const host_topology topology({3});
  virtual_steps world(costs, topology, false, 1);
  schedule plan;
  const std::array three{whole, operand{operand_buffer::data, 0, 5, 1}, operand{operand_buffer::data, 0, 5, 2}};
  plan.reduce(three, three, false);
  plan.reduce(three, {&whole, 1}, true);
  plan.reduce({&whole, 1}, std::span(three).subspan(1), false);
  plan.copy(whole, scratch);
  world.add(plan);
  plan.clear();
  world.add(plan);
  world.add(plan);
  world.finish();
  CHECK(world.steps()[0].work_s == 5 * (2 + 2) * 4);
  CHECK(world.steps()[1].work_s == 5 * (2 * 4 + 7));
  CHECK(world.steps()[2].work_s == 5 * 2 * 4);
  CHECK(world.steps()[3].work_s == 5 * 4);
}

TEST_CASE("virtual_steps: what never meets its like is told with ranks and steps") {
  const host_topology topology({1, 1});
  schedule sends, receives;
  sends.send(1, whole);
  SUBCASE("nobody receives") {
    virtual_steps world(costs, topology, false, 4);
    world.add(sends);
    world.add(receives);
    CHECK_THROWS_WITH_AS(world.finish(), doctest::Contains("rank 0 step 0 (send to rank 1) meets no step"),
                         contract_violation);
  }
  SUBCASE("another length is received") {
    receives.receive(0, {operand_buffer::data, 0, 6});
    virtual_steps world(costs, topology, false, 4);
    world.add(sends);
    world.add(receives);
    CHECK_THROWS_WITH_AS(world.finish(),
                         doctest::Contains("has 20 bytes, and rank 1 step 0 (receive from rank 0) expects 24"),
                         contract_violation);
  }
  SUBCASE("a rank is missing") {
    virtual_steps world(costs, topology, false, 4);
    world.add(sends);
    CHECK_THROWS_AS(world.finish(), contract_violation);
  }
}
