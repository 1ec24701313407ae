// A process that ends after its last step: what it sent still arrives, however late the others look.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/processes.hpp"
#include "tests/support/rank_jobs.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

void check_success(const rank_job& job, const std::string& name) {
  REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 40s), name << job.transcript());
  for (std::size_t rank = 0; rank < job.ranks().size(); ++rank) {
    CHECK_MESSAGE(job.ranks()[rank]->status() == 0, name << job.transcript());
    CHECK_MESSAGE(job.story(static_cast<int>(rank)).code == "end", name << job.transcript());
  }
}

/// Whether all ranks but one have ended.
bool others_have_ended(const rank_job& job, int rank) {
  for (std::size_t other = 0; other < job.ranks().size(); ++other) {
    if (static_cast<int>(other) != rank && !job.ranks()[other]->ended()) {
      return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("sender exits after its last send, receiver sees \"closed by peer\": no, also where the receiver is slow") {
  const testing::watchdog guard("slow receiver", 120s);
  for (const int size : {2, 3, 4}) {
    for (const int slow : {0, size - 1}) {
      for (const char* fault : {"fault=none", "fault=leave"}) {
        rank_job_options options{.size = size, .all = {"steps=2", "sizes=300000,1000", fault}};
        options.of_rank = [&](int rank) {
          return rank == slow ? std::vector<std::string>{"slow_ms=10"} : std::vector<std::string>{};
        };
        const rank_job job(options);
        check_success(job, "rank " + std::to_string(slow) + " of " + std::to_string(size) + " is slow, " + fault);
      }
    }
  }
}

TEST_CASE(
    "a rank that stops among the last messages of the last step and is woken after the others have ended: no error") {
  const testing::watchdog guard("late receiver", 120s);
  struct late_case {
    std::string name;
    int late;
    std::unique_ptr<rank_job> job;
  };
  std::vector<late_case> cases;
  for (const int size : {2, 3, 4}) {
    for (const int late : {0, size - 1}) {
      const rank_job whole({.size = size, .all = {"steps=2", "tell_steps=1"}});
      check_success(whole, "without a fault");
      const std::uint64_t last = whole.story(late).events.back();
      for (std::uint64_t before = 0; before < 8; ++before) {
        rank_job_options options{.size = size, .all = {"steps=2"}};
        options.of_rank = [&](int rank) {
          return rank == late ? std::vector<std::string>{"fault=stop", "at_event=" + std::to_string(last - before)}
                              : std::vector<std::string>{};
        };
        cases.push_back({"rank " + std::to_string(late) + " of " + std::to_string(size) + " stops " +
                             std::to_string(before) + " messages before its last",
                         late, std::make_unique<rank_job>(options)});
      }
    }
  }
  for (const late_case& each : cases) {
    const auto stopped_or_over = [&] {
      return each.job->rank(each.late).stopped() || each.job->rank(each.late).ended();
    };
    REQUIRE_MESSAGE(watch_until(each.job->ranks(), stopped_or_over, 20s), each.name << each.job->transcript());
  }
  // Those that can end do so: at least where the very last message has been.
  const auto ended_before = [&] {
    return std::count_if(cases.begin(), cases.end(), [](const late_case& each) {
      watch_until(each.job->ranks(), [] { return true; }, 0ms);
      return others_have_ended(*each.job, each.late);
    });
  };
  CHECK(watch_until({}, [&] { return ended_before() >= 6; }, 20s));
  for (const late_case& each : cases) {
    each.job->rank(each.late).signal(SIGCONT);
    check_success(*each.job, each.name);
  }
}
