#include <gradweave/device/records.hpp>

#include <array>

#include <doctest/doctest.h>

using namespace gradweave;
using gradweave::detail::difference_of;
using gradweave::detail::record_field;
using gradweave::detail::verdict_on;

TEST_CASE("difference_of: names two ranks and what they differ in; who has no data has no loss") {
  std::array<step_record, 3> records;
  CHECK(difference_of(records.data(), 3).field == record_field::none);
  records[0].has_data = 0;
  records[0].loss_scale = 2;
  CHECK(difference_of(records.data(), 3).field == record_field::none);
  records[2].loss_scale = 4;
  const auto found = difference_of(records.data(), 3);
  CHECK(found.field == record_field::loss_scale);
  CHECK((found.first == 1 && found.other == 2));
  CHECK(difference_of(records.data(), 2).field == record_field::none);
}

TEST_CASE("verdict_on: a step is valid where records agree, and finite where nothing was lost besides") {
  std::array<step_record, 2> records;
  CHECK(verdict_on(records.data(), 2) == step_verdict{1, 1, 0});
  records[1].non_finite = 3;
  CHECK(verdict_on(records.data(), 2) == step_verdict{1, 0, 3});
  records[1].step = 1;
  CHECK(verdict_on(records.data(), 2) == step_verdict{0, 0, 3});
}
