// An exception in one rank's backward pass: it reaches all processes, in the same step.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/processes.hpp"
#include "tests/support/rank_jobs.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

TEST_CASE("an exception in one rank's backward pass: every process is told which rank, which step, and why") {
  const testing::watchdog guard("exception", 120s);
  std::chrono::nanoseconds longest{0};
  for (const int size : {2, 3, 4}) {
    for (const int culprit : {0, size - 1}) {
      for (const std::string step : {"0", "2"}) {
        rank_job_options options{.size = size, .all = {"steps=1000000", "blocking=" + std::to_string(culprit % 2)}};
        options.of_rank = [&](int rank) {
          return rank == culprit ? std::vector<std::string>{"fault=throw", "at_step=" + step}
                                 : std::vector<std::string>{};
        };
        const rank_job job(options);
        REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 20s), job.transcript());
        const rank_story thrown = job.story(culprit);
        REQUIRE_MESSAGE(thrown.fault_at.has_value(), job.transcript());
        CHECK_MESSAGE(thrown.sentence == "the data is bad", job.transcript());
        std::optional<std::string> sentence;
        for (int rank = 0; rank < size; ++rank) {
          if (rank == culprit) {
            continue;
          }
          const rank_story told = job.story(rank);
          sentence = sentence.value_or(told.sentence);
          CHECK_MESSAGE(job.rank(rank).status() == 1, job.transcript());
          CHECK_MESSAGE(told.code == "step aborted", job.transcript());
          CHECK_MESSAGE(told.rank == culprit, job.transcript());
          CHECK_MESSAGE(told.step == std::stoll(step), job.transcript());
          CHECK_MESSAGE(told.sentence.find("the data is bad") != std::string::npos, job.transcript());
          CHECK_MESSAGE(told.sentence == *sentence, job.transcript());
          longest = std::max<std::chrono::nanoseconds>(longest, job.rank(rank).ended_at() - *thrown.fault_at);
        }
        CHECK(watch_until(job.ranks(), [&] { return job.sockets_left().empty(); }, 20s));
      }
    }
  }
  MESSAGE(std::string("exception: the slowest other rank ended after ")
          << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() << " ms");
}
