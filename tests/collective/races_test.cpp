#include <gradweave/collective/races.hpp>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

namespace {
constexpr operand lower{operand_buffer::data, 0, 8};
constexpr operand upper{operand_buffer::data, 8, 8};
constexpr operand whole{operand_buffer::data, 0, 16};
}  // namespace

TEST_CASE("find_race: steps of different channels that touch the same memory need a dependency") {
  schedule unordered;
  unordered.receive(1, lower);
  unordered.send(2, lower);
  CHECK(find_race(unordered, 3) == "race: steps 0 and 1 touch the same memory in no order");

  schedule ordered;
  const auto received = ordered.receive(1, lower);
  ordered.send(2, lower, {received});
  CHECK(find_race(ordered, 3) == "");
}

TEST_CASE("find_race: reading twice, and other memory, need none") {
  schedule plan;
  plan.send(1, lower);
  plan.send(2, lower);
  plan.receive(1, upper);
  plan.receive(2, {operand_buffer::scratch, 0, 8});
  CHECK(find_race(plan, 3) == "");
}

TEST_CASE("find_race: an order may go through other steps and through a channel") {
  schedule plan;
  plan.receive(1, lower);
  const auto second = plan.receive(1, upper);  // of the same channel, after the first
  const auto divided = plan.divide(upper, {second});
  plan.send(2, whole, {divided});
  CHECK(find_race(plan, 3) == "");
}

TEST_CASE("find_race: a reader that a later writer does not wait for is found behind one that it waits for") {
  schedule plan;
  plan.send(1, whole);
  const auto sent = plan.send(2, lower);
  plan.receive(3, lower, {sent});
  CHECK(find_race(plan, 4) == "race: steps 0 and 2 touch the same memory in no order");
}

TEST_CASE("find_race: what is lent may not be touched before it is given back") {
  schedule before;
  before.divide(lower);
  before.lend_to_write(1, whole);
  CHECK(find_race(before, 2) == "race: steps 0 and 1 touch the same memory in no order");

  schedule during;
  during.lend_to_write(1, lower);
  during.divide(whole);
  CHECK(find_race(during, 2) == "race: steps 0 and 1 touch the same memory in no order");

  schedule after;
  const auto lent = after.lend_to_write(1, lower);
  after.divide(whole, {lent});
  CHECK(find_race(after, 2) == "");

  schedule reading;
  reading.lend_to_read(1, lower);
  reading.send(2, lower);
  reading.lend_to_read(3, lower);
  CHECK(find_race(reading, 4) == "");
}

TEST_CASE("find_race: what was borrowed may not be touched once it is given back") {
  schedule unordered;
  unordered.copy({operand_buffer::data, 0, 8, 1}, lower);
  unordered.give_back(1);
  CHECK(find_race(unordered, 2) == "race: steps 0 and 1 touch the same memory in no order");

  schedule late;
  late.give_back(1);
  late.copy({operand_buffer::data, 0, 8, 1}, lower, {0});
  CHECK(find_race(late, 2) == "step 1 uses what was given back to rank 1");
}

TEST_CASE("find_race: dependencies on later steps are refused") {
  schedule plan;
  plan.send(1, lower, {1});
  plan.divide(upper);
  CHECK(find_race(plan, 2) == "step 0 depends on a later one");
}
