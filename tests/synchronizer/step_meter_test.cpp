#include <gradweave/synchronizer/step_meter.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

using meter_clock = detail::step_meter::clock;

/// Lets the clock move on.
void tick() {
  for (const auto now = meter_clock::now(); meter_clock::now() - now < 1us;) {
  }
}

}  // namespace

TEST_CASE("step_meter: adds up steps, bytes and times; a step without communication exposes none") {
  std::vector<detail::step_record> records(2);
  records[1].computed_ns = 7;
  detail::step_meter meter(2);
  meter.reserve(1);
  meter.begin(100);
  meter.backward_ended();
  meter.waited(meter_clock::now());
  meter.end(100, 40, 0, records);
  CHECK(meter.totals().exposed_time == 0ns);
  CHECK(meter.last_step().buckets.empty());
  meter.begin(100);
  meter.launch();
  meter.backward_ended();
  meter.last_collective_ended();
  meter.end(130, 40, 2, records);
  CHECK(meter.last_step().whole.bytes_on_wire == 30);
  CHECK(meter.last_step().slowest.rank == 1);
  CHECK(meter.ranks()[1].late_in_compute == 1);
  const sync_statistics& totals = meter.totals();
  CHECK(totals.steps == 2);
  CHECK(totals.bytes_raw == 80);
  CHECK(totals.bytes_on_wire == 30);
  CHECK(totals.non_finite == 2);
  CHECK(totals.step_time >= totals.communication_time);
}

TEST_CASE("step_meter: forward ends with the first ready gradient, and accumulations count in the step that follows") {
  detail::step_meter meter(2);
  const auto began = meter_clock::now();
  meter.set_up_ended();
  tick();
  meter.ready();  // of an accumulation
  tick();
  meter.backward_ended();
  meter.begin(0);
  tick();
  meter.ready();
  const auto first = meter_clock::now();
  tick();
  meter.ready();
  meter.backward_ended();
  detail::step_record record;
  meter.write(record);
  meter.end(0, 0, 0, {});
  const auto passed = meter_clock::now() - began;
  const sync_statistics& whole = meter.last_step().whole;
  CHECK(whole.forward_time >= 2us);
  CHECK(whole.backward_time >= 2us);
  CHECK(whole.forward_time <= first - began);
  CHECK(std::chrono::nanoseconds(record.computed_ns) >= whole.forward_time + whole.backward_time);
  CHECK(std::chrono::nanoseconds(record.computed_ns) <= passed);
  meter.begin(0);
  meter.backward_ended();
  CHECK(meter.last_step().whole.backward_time == whole.backward_time);  // until the next step ends
  meter.end(0, 0, 0, {});
  CHECK(meter.last_step().whole.backward_time == 0ns);
}

TEST_CASE("step_meter: what is waited is exposed, and belongs to the buckets whose turn it was") {
  detail::step_meter meter(2);
  meter.reserve(3);
  meter.begin(1000);
  const auto ready = meter_clock::now();
  const auto reduce = [&](std::uint64_t sent) {
    meter.bucket_begins(sent);
    tick();
    meter.launch();
    meter.arrive();
    tick();
    meter.bucket_ends(ready, 40, sent + 10);
  };
  reduce(1000);  // nobody waits
  meter.backward_ended();
  const auto waits = meter_clock::now();
  reduce(1010);
  meter.waited(waits);
  const auto waits_again = meter_clock::now();
  meter.bucket_begins(1020);
  meter.launch();
  tick();
  meter.waited(waits_again);  // for something else: the third bucket is not done
  meter.arrive();
  meter.bucket_ends({}, 40, 1030);
  meter.launch();
  meter.last_collective_ended();
  meter.end(1040, 120, 0, std::vector<detail::step_record>(2));
  const step_statistics& step = meter.last_step();
  REQUIRE(step.buckets.size() == 3);
  CHECK(step.buckets[0].exposed == 0ns);
  CHECK(step.buckets[1].exposed >= 2us);
  CHECK(step.buckets[2].exposed >= 1us);
  CHECK(step.whole.exposed_time >= step.buckets[1].exposed + step.buckets[2].exposed);
  CHECK(step.whole.encode_time >= 2us);
  CHECK(step.whole.decode_time >= 2us);
  CHECK(step.whole.bytes_on_wire == 40);
  for (const bucket_statistics& each : step.buckets) {
    CHECK(each.bytes_on_wire == 10);
    CHECK(each.bytes_raw == 40);
    CHECK(each.ready <= each.launched);
    CHECK(each.launched < each.finished);
  }
  CHECK(step.buckets[2].ready == step.buckets[2].launched);  // not known when it ended
}
