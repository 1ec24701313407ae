#include <gradweave/synchronizer/step_meter.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("step_meter: adds up steps, bytes and times; a step without communication exposes none") {
  sync_statistics totals;
  detail::step_meter meter;
  meter.begin(100);
  meter.backward_ended();
  meter.end(100, 40, 0, totals);
  CHECK(totals.exposed_time.count() == 0);
  meter.begin(100);
  meter.launch();
  meter.backward_ended();
  meter.last_collective_ended();
  meter.end(130, 40, 2, totals);
  CHECK(totals.steps == 2);
  CHECK(totals.bytes_raw == 80);
  CHECK(totals.bytes_on_wire == 30);
  CHECK(totals.non_finite == 2);
  CHECK(totals.step_time >= totals.exposed_time);
  CHECK(totals.communication_time.count() >= 0);
}
