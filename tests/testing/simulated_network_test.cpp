#include <gradweave/testing/simulated_network.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/scheduled.hpp>
#include <gradweave/testing/transport_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;
using testing::fault_kind;
using namespace std::chrono_literals;

namespace {

/// What a rank saw of a job that sums ones over the ranks, again and again.
struct outcome {
  int sums = 0;
  std::optional<failure> cause;
  deadline ended{};
};

struct job {
  std::vector<outcome> ranks;
  std::vector<std::string> trace;
  std::uint64_t digest = 0;
  bool happened = false;
  bool hung = false;
};

job sum_ones(testing::simulated_network_options options, int sums = 10) {
  options.keeps_trace = true;
  testing::virtual_time time;
  testing::simulated_network network(time, options);
  job done;
  done.ranks.resize(static_cast<std::size_t>(options.size));
  network.run([&](testing::simulated_transport end) {
    outcome& own = done.ranks[static_cast<std::size_t>(end.rank())];
    backend::scheduled ranks("simulated", std::move(end), backend::scheduled_options{.timeout = 1s});
    try {
      for (; own.sums < sums; ++own.sums) {
        std::vector<float> values(50, 1);
        const extent whole{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
        run_collective(ranks,
                       {.operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}});
        if (values != std::vector<float>(50, static_cast<float>(options.size))) {
          return;
        }
      }
    } catch (const sync_error& error) {
      own.cause = ranks.abort(error.cause());
    }
    own.ended = network.now();
  });
  done.trace = network.trace();
  done.digest = network.trace_digest();
  done.happened = network.fault_time().has_value();
  done.hung = network.hung();
  return done;
}

bool has_line(const job& done, const std::string& words) {
  for (const std::string& line : done.trace) {
    if (line.find(words) != std::string::npos) {
      return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("simulated_transport: conforms") {
  const testing::watchdog guard("conformance of the simulated network");
  testing::virtual_time time;
  std::deque<testing::simulated_network> networks;  // they outlive their ends
  const auto connect = [&](int size) {
    auto& network = networks.emplace_back(
        time, testing::simulated_network_options{.size = size, .room_bytes = 100'000, .calls_max = 100'000'000});
    std::vector<testing::simulated_transport> ends;
    for (int rank = 0; rank < size; ++rank) {
      ends.emplace_back(network, rank);
    }
    return ends;
  };
  const auto run = [&](int count, const auto& body) { time.run(count, body); };
  const auto report = testing::check_transport(connect, {.message_bytes = 300'000}, run);
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("simulated_network: without a fault all ranks get the sums, over narrow and over slow connections") {
  const testing::watchdog guard("simulated sums");
  for (const int size : {1, 2, 3, 4}) {
    for (const std::size_t narrow : {std::size_t{1}, std::size_t{50}, SIZE_MAX}) {
      const job done = sum_ones({.size = size,
                                 .seed = narrow,
                                 .hold_up_max = 1ms,
                                 .room_bytes = std::min<std::size_t>(narrow, 4096),
                                 .piece_bytes_max = narrow,
                                 .interruption_odds = 10,
                                 .refusal_odds = 3});
      for (const outcome& rank : done.ranks) {
        CHECK(rank.sums == 10);
        CHECK_FALSE(rank.cause);
      }
      CHECK_FALSE(done.hung);
    }
  }
}

TEST_CASE("simulated_network: a seed gives the same trace every time, another seed another one") {
  const testing::simulated_network_options options{.size = 4,
                                                   .seed = 5,
                                                   .hold_up_max = 20ms,
                                                   .interruption_odds = 5,
                                                   .fault = {.kind = fault_kind::death, .rank = 1, .after_calls = 60}};
  const job first = sum_ones(options);
  CHECK(first.happened);
  CHECK(first.trace.size() > 100);
  const job again = sum_ones(options);
  CHECK(again.trace == first.trace);
  CHECK(again.digest == first.digest);
  testing::simulated_network_options other = options;
  other.seed = 6;
  CHECK(sum_ones(other).digest != first.digest);
}

TEST_CASE("simulated_network: a rank that dies is lost to all others, long before the deadline") {
  const job done = sum_ones({.size = 3, .fault = {.kind = fault_kind::death, .rank = 1, .after_calls = 50}});
  REQUIRE(done.happened);
  CHECK(done.ranks[1].cause->code == errc::internal);
  for (const int survivor : {0, 2}) {
    const outcome& rank = done.ranks[static_cast<std::size_t>(survivor)];
    REQUIRE(rank.cause);
    CHECK(rank.cause->code == errc::peer_lost);
    CHECK(rank.cause->rank == 1);
    CHECK(rank.ended - deadline{} < 100ms);
  }
  CHECK(has_line(done, "rank 1 dies"));
}

TEST_CASE("simulated_network: both ends of a reset see the other gone, and all tell one story") {
  const job done =
      sum_ones({.size = 3, .fault = {.kind = fault_kind::reset, .rank = 2, .other = 1, .after_calls = 50}});
  REQUIRE(done.happened);
  for (const outcome& rank : done.ranks) {
    REQUIRE(rank.cause);
    CHECK(rank.cause->code == errc::peer_lost);
    CHECK(rank.cause->rank == done.ranks[0].cause->rank);
    CHECK(rank.cause->rank != 0);
  }
}

TEST_CASE("simulated_network: a short stall is waited for, a stall for ever is named in time") {
  const job short_one =
      sum_ones({.size = 3, .fault = {.kind = fault_kind::stall, .rank = 0, .after_calls = 50, .lasts = 500ms}});
  REQUIRE(short_one.happened);
  for (const outcome& rank : short_one.ranks) {
    CHECK(rank.sums == 10);
    CHECK(rank.ended - deadline{} > 500ms);
  }
  const job for_ever = sum_ones({.size = 4, .fault = {.kind = fault_kind::stall, .rank = 2, .after_calls = 50}});
  REQUIRE(for_ever.happened);
  for (const int survivor : {0, 1, 3}) {
    const outcome& rank = for_ever.ranks[static_cast<std::size_t>(survivor)];
    REQUIRE(rank.cause);
    CHECK(rank.cause->code == errc::timed_out);
    CHECK(rank.cause->rank == 2);
    CHECK(rank.ended - deadline{} < 2500ms);
  }
}

TEST_CASE("simulated_network: a run that would never end is ended") {
  testing::virtual_time time;
  testing::simulated_network waits(time, {.size = 2});
  waits.run([](testing::simulated_transport end) {
    while (end.aborted() == nullptr) {
      end.wait(end.events(), deadline::max());
    }
  });
  CHECK(waits.hung());
  testing::simulated_network spins(time, {.size = 2, .calls_max = 1000});
  spins.run([](testing::simulated_transport end) {
    while (end.aborted() == nullptr) {
      end.wait(end.events() - 1, deadline::max());
    }
  });
  CHECK(spins.hung());
}

TEST_CASE("simulated_network: a rank that computes hears nothing meanwhile") {
  testing::virtual_time time;
  testing::simulated_network network(time, {.size = 2});
  deadline heard{};
  network.run([&](testing::simulated_transport end) {
    if (end.rank() == 0) {
      network.compute(0, 300ms);
      control_message in;
      while (!end.try_receive_control(1, in)) {
        end.wait(end.events(), deadline::max());
      }
      heard = network.now();
    } else {
      end.try_send_control(0, {});
    }
  });
  CHECK(heard - deadline{} == 300ms);
}
