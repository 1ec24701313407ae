// A rank that stops without ending: at the deadline all others name it, and where they were; when it wakes it hears that.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/rank_jobs.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// A job in which one rank stops, by default in the backward pass of the second step.
struct stop_case {
  int size;
  int culprit;
  bool blocking;
  std::string when = "at_step=1";
  bool share_memory = false;

  std::string to_string() const {
    return "rank " + std::to_string(culprit) + " of " + std::to_string(size) + " stops, " + when +
           (blocking ? ", blocking" : "") + (share_memory ? ", in shared memory" : "");
  }
};

std::unique_ptr<rank_job> start(const stop_case& which, const std::string& folder, std::chrono::milliseconds timeout) {
  rank_job_options options{.size = which.size, .folder = folder};
  options.all = {"steps=4", "timeout_ms=" + std::to_string(testing::watchdog::scaled(timeout).count()),
                 std::string("blocking=") + (which.blocking ? "1" : "0"),
                 std::string("share_memory=") + (which.share_memory ? "1" : "0")};
  options.of_rank = [which](int rank) {
    return rank == which.culprit ? std::vector<std::string>{"fault=stop", which.when} : std::vector<std::string>{};
  };
  return std::make_unique<rank_job>(options);
}

/// The name of the bucket's only gradient; buckets are launched from the last one to the first.
std::string slot_of(std::int64_t bucket) { return bucket < 0 ? "" : "layer" + std::to_string(3 - bucket); }

/// Whether all but the culprit have ended, and that has stopped.
bool only_culprit_left(const stop_case& which, const rank_job& job) {
  for (int rank = 0; rank < which.size; ++rank) {
    if (!(rank == which.culprit ? job.rank(rank).stopped() : job.rank(rank).ended())) {
      return false;
    }
  }
  return true;
}

/// Checks the ranks that did not stop. The longest time that one took to end.
std::chrono::nanoseconds check(const stop_case& which, const rank_job& job) {
  return check_survivors(which.to_string(), job, which.culprit, "timed out", [&](const rank_story& told) {
    CHECK_MESSAGE(told.step == 1, which.to_string() << job.transcript());
    CHECK_MESSAGE(told.slots == slot_of(told.bucket), which.to_string() << job.transcript());
  });
}

/// Starts all jobs at once: they do nothing but wait.
void run_all(const std::vector<stop_case>& cases) {
  const scratch_folder folder;
  std::vector<std::unique_ptr<rank_job>> jobs;
  for (const stop_case& each : cases) {
    jobs.push_back(start(each, folder.path(), 2s));
  }
  std::chrono::nanoseconds longest{0};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const bool over = watch_until(jobs[i]->ranks(), [&] { return only_culprit_left(cases[i], *jobs[i]); }, 30s);
    REQUIRE_MESSAGE(over, cases[i].to_string() << jobs[i]->transcript());
    longest = std::max(longest, check(cases[i], *jobs[i]));
    jobs[i]->rank(cases[i].culprit).signal(SIGCONT);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const std::string name = cases[i].to_string();
    const bool over = watch_to_the_end(jobs[i]->ranks(), 20s);
    REQUIRE_MESSAGE(over, name << ": the rank that was woken goes on" << jobs[i]->transcript());
    const rank_story woken = jobs[i]->story(cases[i].culprit);
    CHECK_MESSAGE(jobs[i]->rank(cases[i].culprit).status() == 1, name << jobs[i]->transcript());
    // Which sentence: it may have heard the first that was told, before it was found out that it is silent.
    CHECK_MESSAGE((woken.code == "timed out" || woken.code == "peer lost"), name << jobs[i]->transcript());
    CHECK_MESSAGE(
        watch_until(jobs[i]->ranks(), [&] { return jobs[i]->sockets_left().empty(); }, 20s), name << ": left sockets");
  }
  CHECK(folder.is_empty());
  MESSAGE(std::to_string(cases.size()) << " jobs with a timeout of 2 s; the slowest survivor ended after "
                                       << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count()
                                       << " ms");
}

/// Between which messages of a rank its second step is.
std::pair<std::uint64_t, std::uint64_t> second_step(const stop_case& which) {
  const rank_job job(
      {.size = which.size,
       .all = {"steps=2", "tell_steps=1", std::string("share_memory=") + (which.share_memory ? "1" : "0")}});
  REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 30s), job.transcript());
  const auto events = job.story(which.culprit).events;
  REQUIRE_MESSAGE(events.size() == 2, job.transcript());
  return {events[0], events[1]};
}

}  // namespace

TEST_CASE("a rank stalls (SIGSTOP): the timeout names it on all others, with step and bucket; woken it fails too") {
  const testing::watchdog guard("stopped rank", 120s);
  std::vector<stop_case> cases;
  for (const int size : {2, 3, 4}) {
    for (const int culprit : {0, size - 1}) {
      cases.push_back({size, culprit, true});
      cases.push_back({size, culprit, false});
      cases.push_back({size, culprit, false, "at_step=1", true});
    }
  }
  run_all(cases);
}

TEST_CASE("a rank that stops in the middle of a collective: named at the deadline, at whichever message it stopped") {
  const testing::watchdog guard("stopped in a collective", 120s);
  std::vector<stop_case> cases;
  for (const int size : {2, 3, 4}) {
    for (const int culprit : {0, size - 1}) {
      const auto [first, last] = second_step({size, culprit, false});
      // The last messages are left out: after these others may have ended the step.
      for (std::uint64_t i = 1; i <= repetitions(5); ++i) {
        cases.push_back({size, culprit, i % 2 == 0, "at_event=" + std::to_string(first + i * (last - first - 6) / 5)});
      }
    }
  }
  run_all(cases);
}

TEST_CASE("a rank that stops between ranks that share memory: named at the deadline, at whichever notice it stopped") {
  const testing::watchdog guard("stopped in shared memory", 120s);
  std::vector<stop_case> cases;
  for (const int size : {2, 4}) {
    for (const int culprit : {0, size - 1}) {
      const auto [first, last] = second_step({size, culprit, false, "", true});
      for (std::uint64_t i = 1; i <= repetitions(5); ++i) {
        cases.push_back(
            {size, culprit, i % 2 == 0, "at_event=" + std::to_string(first + i * (last - first - 6) / 5), true});
      }
    }
  }
  run_all(cases);
}

TEST_CASE("a rank that stops and is woken before the deadline: nothing happens") {
  const testing::watchdog guard("woken rank", 120s);
  const scratch_folder folder;
  for (const stop_case& which :
       {stop_case{2, 0, false}, stop_case{3, 1, true}, stop_case{3, 2, false, "at_event=70"}}) {
    const auto job = start(which, folder.path(), 60s);
    process& culprit = job->rank(which.culprit);
    REQUIRE_MESSAGE(watch_until(job->ranks(), [&] { return culprit.stopped(); }, 30s), job->transcript());
    CHECK_FALSE(watch_until(job->ranks(), [&] { return only_culprit_left(which, *job); }, 500ms));
    culprit.signal(SIGCONT);
    REQUIRE_MESSAGE(watch_to_the_end(job->ranks(), 30s), job->transcript());
    for (int rank = 0; rank < which.size; ++rank) {
      CHECK_MESSAGE(job->story(rank).code == "end", job->transcript());
    }
  }
}
