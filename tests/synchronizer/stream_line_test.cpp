#include <gradweave/synchronizer/stream_line.hpp>

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/none.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_loopback.hpp"

using namespace gradweave;
using namespace gradweave::tests;

TEST_CASE("stream_line: enqueues buckets in the plan's order as they are complete, and then the end") {
  const testing::watchdog guard("stream_line");
  simulated_machine machine;
  run_streams(machine, 2, [&](stream_rank own) {
    std::vector<float> a(3, 1.0F), b(3, 2.0F);
    manifest entries;
    entries.add_range("a", a.data(), a.size());
    entries.add_range("b", b.data(), b.size());
    detail::gradient_table gradients(std::move(entries));
    gradients.place(detail::lay_out_arena(gradients.entries()), nullptr);
    const auto device = own.overlap.make_device();
    detail::stream_watch<stream_loopback, simulated_device> watch(own.backend, device, own.overlap.deadline());
    detail::stream_line<stream_loopback, simulated_device, compression::none> line(own.backend, device, gradients, 1);
    const auto computing = machine.make_queue();
    const step_record record{.step = 0};
    line.adopt({{{{1}}, {{0}}}}, {});
    gradients.begin_step();
    line.begin_step();

    line.mark_ready({0}, computing);
    CHECK(line.count_down({0}));
    CHECK_FALSE(line.advance(&record, watch));
    CHECK(own.backend.payload_bytes_sent() == 0);  // the first bucket comes first
    CHECK(line.in_context({}).slots == std::vector<std::string>{"b"});
    line.mark_ready({1}, computing);
    CHECK(line.count_down({1}));
    CHECK_FALSE(line.advance(nullptr, watch));
    CHECK(own.backend.payload_bytes_sent() == 24);
    CHECK(watch.under_way() == 0);
    CHECK(line.advance(&record, watch));
    CHECK(watch.under_way() == 1);

    device.synchronize(line.get());
    CHECK(*line.verdict() == step_verdict{1, 1, 0});
    CHECK(a == std::vector<float>(3, 2.0F));
    CHECK(b == std::vector<float>(3, 4.0F));
  });
}
