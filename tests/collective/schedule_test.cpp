#include <gradweave/collective/schedule.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("schedule: keeps steps, dependencies and the reach of its scratch operands") {
  schedule plan;
  const auto first = plan.receive(1, {operand_buffer::scratch, 4, 6});
  const auto second = plan.copy({operand_buffer::scratch, 4, 6}, {operand_buffer::data, 0, 6}, {first});
  CHECK(plan.steps().size() == 2);
  CHECK(plan.dependencies(plan.steps()[first]).empty());
  REQUIRE(plan.dependencies(plan.steps()[second]).size() == 1);
  CHECK(plan.dependencies(plan.steps()[second])[0] == first);
  CHECK(plan.scratch_elements() == 10);
  plan.clear();
  CHECK(plan.steps().empty());
  CHECK(plan.scratch_elements() == 0);
}

TEST_CASE("schedule_world: neighbours wrap around in both directions") {
  CHECK(schedule_world{0, 3}.neighbour(-1) == 2);
  CHECK(schedule_world{2, 3}.neighbour(1) == 0);
  CHECK(schedule_world{1, 3}.neighbour(-7) == 0);
  CHECK(schedule_world{0, 1}.neighbour(5) == 0);
}

TEST_CASE("cut_evenly: pieces cover everything, rise, and are cut at multiples of 16") {
  std::vector<std::size_t> pieces;
  for (std::size_t elements = 0; elements < 300; ++elements) {
    for (int size = 1; size < 9; ++size) {
      cut_evenly(elements, size, pieces);
      REQUIRE(pieces.size() == static_cast<std::size_t>(size) + 1);
      CHECK(pieces.front() == 0);
      CHECK(pieces.back() == elements);
      for (std::size_t r = 0; r + 1 < pieces.size(); ++r) {
        CHECK(pieces[r] <= pieces[r + 1]);
        CHECK((pieces[r] % 16 == 0 || pieces[r] == elements));
      }
    }
  }
}
