// What goes wrong for users of other libraries, as far as it is about the network, and what happens here. Each test is named
// after what was seen; such names stand in the tests of stops, exits and namespaces too.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/launch.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/process_table.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/rank_jobs.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// A collective that one rank enters: operation, kind, and elements.
struct entered {
  collective operation;
  element_kind kind;
  std::size_t elements;
};

/// What rank 0 and rank 1 are told that enter these, and how long it took.
std::pair<std::array<std::string, 2>, std::chrono::nanoseconds> told(entered first, entered second) {
  std::array<std::string, 2> sentences;
  std::array<std::chrono::nanoseconds, 2> took{};
  run_tcp(2, [&](backend::tcp::backend_type backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    const entered mine = rank == 0 ? first : second;
    std::vector<std::byte> memory(mine.elements * element_bytes(mine.kind));
    const extent whole{memory.data(), memory.size(), 0};
    const std::array<std::size_t, 3> pieces{0, mine.elements / 2, mine.elements};
    const auto begin = std::chrono::steady_clock::now();
    try {
      run_collective(backend, {.operation = mine.operation, .kind = mine.kind, .data = {&whole, 1}, .pieces = pieces});
      sentences[rank] = "it ends well";
    } catch (const sync_error& error) {
      sentences[rank] = backend.abort(error.cause()).detail + ": " + error.code().message();
    }
    took[rank] = std::chrono::steady_clock::now() - begin;
  });
  return {sentences, std::max(took[0], took[1])};
}

/// The processor time that a process has taken so far.
double cpu_seconds(pid_t id) {
  const auto status = process_status(std::to_string(id));
  return (std::stod(status[11]) + std::stod(status[12])) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace

TEST_CASE(
    "size mismatch aborts one rank, kind mismatch gives garbage, op mismatch hangs: here both ranks name both calls") {
  const testing::watchdog guard("mismatch");
  const entered usual{collective::all_reduce, element_kind::float32, 100};
  for (const auto& [other, name] :
       {std::pair(entered{collective::all_reduce, element_kind::float32, 200}, "200 float32"),
        std::pair(entered{collective::all_reduce, element_kind::float64, 50}, "50 float64"),
        std::pair(entered{collective::all_gather, element_kind::float32, 100}, "all_gather")}) {
    const auto [sentences, took] = told(usual, other);
    CHECK(sentences[0] == sentences[1]);
    for (const std::string& each : sentences) {
      CHECK_MESSAGE(each.find("collective mismatch") != std::string::npos, each);
      CHECK_MESSAGE(each.find("all_reduce of 100 float32") != std::string::npos, each);
      CHECK_MESSAGE(each.find(name) != std::string::npos, each);
    }
    CHECK(took < testing::watchdog::scaled(20s));  // the timeout is 5 minutes
  }
}

TEST_CASE(
    "a rank dies: survivors hang, or \"connection closed by peer\" with no rank; here rank, step and bucket are told") {
  const testing::watchdog guard("a rank dies");
  for (const int size : {2, 3, 4}) {
    rank_job_options options{.size = size, .all = {"steps=1000000", "blocking=1"}};
    options.of_rank = [](int rank) {
      return rank == 1 ? std::vector<std::string>{"fault=kill", "at_step=1"} : std::vector<std::string>{};
    };
    const rank_job job(options);
    REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 20s), job.transcript());
    for (int rank = 0; rank < size; ++rank) {
      if (rank != 1) {
        const rank_story told = job.story(rank);
        CHECK_MESSAGE(told.code == "peer lost", job.transcript());
        CHECK_MESSAGE(told.rank == 1, job.transcript());
        CHECK_MESSAGE(told.step == 1, job.transcript());
        CHECK_MESSAGE(told.bucket == 0, job.transcript());
        CHECK_MESSAGE(told.slots == "layer3", job.transcript());
      }
    }
  }
}

TEST_CASE("receive of 0 bytes read as \"try again\": a closed connection ends a sleep once, not again and again") {
  const testing::watchdog guard("0 bytes");
  auto ends = connect_tcp(3);
  ends.pop_back();  // rank 2 is gone
  int sleeps = 0;
  const auto until = ends[0].now() + 500ms;
  for (; ends[0].now() < until; ++sleeps) {
    ends[0].wait(ends[0].events(), until);
    std::array<std::byte, 8> room;
    CHECK(ends[0].try_receive(2, room) == 0);
  }
  CHECK(ends[0].peer_closed(2));
  CHECK_FALSE(ends[0].peer_closed(1));
  CHECK(sleeps < 20);
}

TEST_CASE("100 % CPU for ever: a rank that waits for another takes hardly any") {
  const testing::watchdog guard("processor time");
  rank_job_options options{.size = 3, .all = {"steps=3", "timeout_ms=600000"}};
  options.of_rank = [](int rank) {
    return rank == 2 ? std::vector<std::string>{"fault=stop", "at_step=1"} : std::vector<std::string>{};
  };
  const rank_job job(options);
  REQUIRE_MESSAGE(watch_until(job.ranks(), [&] { return job.rank(2).stopped(); }, 20s), job.transcript());
  std::this_thread::sleep_for(100ms);
  const std::array before{cpu_seconds(job.rank(0).id()), cpu_seconds(job.rank(1).id())};
  std::this_thread::sleep_for(1s);
  CHECK(cpu_seconds(job.rank(0).id()) - before[0] < 0.2);
  CHECK(cpu_seconds(job.rank(1).id()) - before[1] < 0.2);
  job.rank(2).signal(SIGCONT);
  REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 20s), job.transcript());
}

TEST_CASE("concurrent communicators deadlock: here two synchronizers get on whose gradients come in any order") {
  const testing::watchdog guard("two synchronizers");
  const detail::reserved_port first(0);
  const detail::reserved_port second(0);
  on_threads(3, [&](int rank) {
    std::vector<float> a(1000), b(10);
    const auto make = [&](const detail::reserved_port& place, std::vector<float>& gradient) {
      manifest gradients;
      gradients.add("w", gradient);
      return synchronize(std::move(gradients),
                         backend::tcp::from_options({.meet = {.rank = rank, .size = 3, .port = place.number()}}),
                         overlap::progress_thread{});
    };
    auto of_a = make(first, a);
    auto of_b = make(second, b);
    for (int step = 0; step < 20; ++step) {
      a.assign(a.size(), static_cast<float>(3 * rank));
      b.assign(b.size(), static_cast<float>(6 * rank));
      auto step_a = of_a.begin_step();
      auto step_b = of_b.begin_step();
      if (rank % 2 == 0) {
        step_a.ready({0});
        step_b.ready({0});
      } else {
        step_b.ready({0});
        step_a.ready({0});
      }
      step_a.finish();  // in one order: only then does a rank say that its step is over
      step_b.finish();
      CHECK(a.back() == 3);
      CHECK(b.back() == 6);
    }
  });
}
