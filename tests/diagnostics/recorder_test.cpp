#include <gradweave/diagnostics/recorder.hpp>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/environment.hpp"
#include "tests/support/json.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

rank_dump dump_in(const scratch_folder& folder, const std::string& file) {
  std::ifstream in(folder.path(file));
  return read_dump(in);
}

/// Two gradients in a bucket each, on `size` ranks, until `backward(rank, step number, step)` has run `steps` times.
template <class Backward>
void train(int size, int steps, const Backward& backward) {
  backend::run_loopback(size, [&](backend::loopback backend) {
    const int rank = backend.rank();
    std::vector<float> first(300, 1), second(50, 2);
    manifest gradients;
    gradients.add("first", first);
    gradients.add("second", second);
    auto sync = synchronize(std::move(gradients), std::move(backend), bucketing::per_tensor{}, compression::bf16{});
    for (int s = 0; s < steps; ++s) {
      sync.step([&](auto& step) { backward(rank, s, step); });
    }
  });
}

}  // namespace

TEST_CASE("recorder: keeps the last 1000 collectives, and writes them on SIGUSR1 and on the first failure") {
  const testing::watchdog guard("recorder");
  const scratch_folder folder;
  recorder records({.debug = debug_level::detail, .dump_prefix = folder.path("at")}, 1, 4);
  for (std::uint64_t number = 1; number <= 1500; ++number) {
    records.enter({.operation = collective::barrier}, number);
    if (number != 1500) {
      records.leave();
    }
  }
  std::raise(SIGUSR1);
  for (; !folder.has("at.1.dump"); std::this_thread::yield()) {
  }
  rank_dump dump = dump_in(folder, "at.1.dump");
  CHECK(dump.reason == "SIGUSR1");
  CHECK(dump.rank == 1);
  REQUIRE(dump.events.size() == 1000);
  CHECK(dump.events.front().collective == 501);
  CHECK(dump.events.back().collective == 1500);
  CHECK(dump.events.back().end_ns == 0);
  CHECK(dump.events[998].end_ns != 0);
  records.failed("the first");
  records.failed("the second");
  CHECK(dump_in(folder, "at.1.dump").reason == "the first");
  CHECK(recorder::make({.debug = debug_level::info}, 0, 1) == nullptr);
}

TEST_CASE(
    "GRADWEAVE_DEBUG=detail: SIGUSR1 shows who waits for whom while a job hangs, and a failure leaves its story") {
  const testing::watchdog guard("debug");
  const scratch_folder folder;
  const scoped_variable level("GRADWEAVE_DEBUG", "detail"), prefix("GRADWEAVE_DEBUG_DUMP", folder.path("at").c_str());
  const auto all_dumps = [&] {
    std::vector<rank_dump> dumps;
    for (const char* file : {"at.0.dump", "at.1.dump", "at.2.dump"}) {
      if (folder.has(file)) {
        dumps.push_back(dump_in(folder, file));
      }
    }
    return who_was_where(dumps);
  };
  const auto run = [&] {
    train(3, 3, [&](int rank, int number, auto& step) {
      while (rank == 1 && number == 1) {
        std::raise(SIGUSR1);
        std::this_thread::sleep_for(50ms);
        const std::string text = all_dumps();
        if (text.find("ranks 0, 2 wait in all_to_all (collective ") == 0 &&
            text.find(", step 1, bucket 0) for rank 1, which last left all_gather of ") != std::string::npos) {
          break;
        }
      }
      if (rank == 1 && number == 2) {
        throw std::runtime_error("no more");
      }
      step.ready({1});
      step.ready({0});
    });
  };
  CHECK_THROWS_WITH(run(), "no more");
  const std::string text = all_dumps();
  for (const char* rank : {"rank 0", "rank 1", "rank 2"}) {
    CHECK_MESSAGE(
        text.find(std::string(rank) + " wrote because of: rank 1, step 2: an exception in the backward pass") !=
            std::string::npos,
        text);
  }
}

TEST_CASE("GRADWEAVE_TRACE: each rank's file has every bucket's life, and every arrow its other end, later") {
  const testing::watchdog guard("trace");
  const scratch_folder folder;
  constexpr int size = 3, steps = 4;
  {
    const scoped_variable prefix("GRADWEAVE_TRACE", folder.path("trace").c_str());
    train(size, steps, [](int, int, auto& step) {
      step.ready({1});
      step.ready({0});
    });
  }
  std::map<double, double> begins, ends;  // arrows, by number
  for (int rank = 0; rank < size; ++rank) {
    const json trace = json_reader::read(folder.read("trace." + std::to_string(rank) + ".json"));
    std::map<std::string, int> found;
    std::multiset<std::string> open;
    double lane_free = 0;
    for (const json& each : trace.items) {
      const std::string phase = each["ph"].text;
      CHECK(each["pid"].number == rank);
      if (phase == "M") {
        continue;
      }
      if (phase == "X" && each["args"]["step"].number > 0) {
        ++found[each["name"].text];
      }
      if (phase == "X" && each["tid"].number == 1) {  // one after another
        CHECK(each["ts"].number >= lane_free - 0.002);
        lane_free = each["ts"].number + each["dur"].number;
      } else if (phase == "b") {
        open.insert(each["id"].text);
      } else if (phase == "e") {
        CHECK(open.erase(each["id"].text) == 1);
      } else if (phase == "i") {
        ++found["ready"];
      } else if (phase == "s") {
        CHECK(begins.emplace(each["id"].number, each["ts"].number).second);
      } else if (phase == "f") {
        CHECK(ends.emplace(each["id"].number, each["ts"].number).second);
      }
    }
    CHECK(open.empty());
    CHECK(found["ready"] == 2 * steps);
    CHECK(found["encode"] == 2 * (steps - 1));
    CHECK(found["transfer"] == (2 * 2 + 1) * (steps - 1));
    CHECK(found["decode"] == 2 * 2 * (steps - 1));
    CHECK(found["exposed"] == steps - 1);
  }
  CHECK(begins.size() >= size * steps * 5);
  CHECK(begins.size() == ends.size());
  for (const auto& [number, at] : begins) {
    REQUIRE(ends.count(number) == 1);
    // Ranks' clocks, which are one here, are aligned as well as messages took equally long: within microseconds, or what a
    // busy machine makes of them.
    constexpr double second_us = 1e6;
    CHECK(ends[number] >= at - second_us);
  }
}
