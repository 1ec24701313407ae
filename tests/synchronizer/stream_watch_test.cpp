#include <gradweave/synchronizer/stream_watch.hpp>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/stream_loopback.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// Watches over one step of each rank, which has ended step `step_of(rank)`, until it is over. What each rank was told.
std::vector<std::string> watch_steps(std::uint64_t (*step_of)(int rank), const step_verdict& verdict) {
  simulated_machine machine;
  std::vector<std::string> told(2);
  run_streams(machine, 2, [&](stream_rank own) {
    const auto device = own.overlap.make_device();
    detail::stream_watch<stream_loopback, simulated_device> watch(own.backend, device, own.overlap.deadline());
    const auto lane = device.make_stream();
    const auto rank = static_cast<std::size_t>(own.backend.rank());
    device.copy_to_host(lane.get(), watch.verdict(), reinterpret_cast<const std::byte*>(&verdict), sizeof verdict);
    device.record(watch.end(), lane.get());
    watch.add({.step = step_of(own.backend.rank())});
    try {
      while (watch.under_way() != 0) {
        watch.advance([&](const step_record& record, const step_verdict& seen) {
          told[rank] = std::to_string(record.step) + " with " + std::to_string(seen.non_finite);
        });
        std::this_thread::yield();
      }
    } catch (const sync_error& error) {
      told[rank] = own.backend.abort(error.cause()).detail;
    }
  });
  return told;
}

}  // namespace

TEST_CASE("stream_watch: a step is over once all ranks' devices have got through it; what differs is told on all") {
  const testing::watchdog guard("stream_watch");
  const auto same = [](int) -> std::uint64_t { return 4; };
  CHECK(watch_steps(same, {1, 0, 3}) == std::vector<std::string>(2, "4 with 3"));
  const auto invalid = watch_steps(same, {0, 0, 0});
  CHECK(invalid[0] == invalid[1]);
  CHECK(invalid[0].find("differ on the device and not on the hosts") != std::string::npos);
  const auto different = watch_steps([](int rank) { return static_cast<std::uint64_t>(rank); }, {1, 1, 0});
  CHECK(different[0].find("different numbers: 0 on rank 0, 1 on rank 1") != std::string::npos);
  CHECK(different[0] == different[1]);
}
