// A rank that is killed, at each message of a step: all others end, at once, and tell the same story.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
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

/// A job in which one rank fails after so many messages.
struct kill_case {
  int size;
  int culprit;
  std::uint64_t at_event;
  const char* fault;
  bool blocking;
  bool compressed;
  bool share_memory = false;

  std::string to_string() const {
    return std::string(fault) + " of rank " + std::to_string(culprit) + " of " + std::to_string(size) + " after " +
           std::to_string(at_event) + " messages" + (blocking ? ", blocking" : "") +
           (compressed ? ", compressed" : "") + (share_memory ? ", in shared memory" : "");
  }
};

rank_job_options job_of(const kill_case& which, const std::string& folder) {
  rank_job_options options{.size = which.size, .all = {"steps=1000000"}, .folder = folder};
  options.all.push_back(std::string("blocking=") + (which.blocking ? "1" : "0"));
  options.all.push_back(std::string("compressed=") + (which.compressed ? "1" : "0"));
  options.all.push_back(std::string("share_memory=") + (which.share_memory ? "1" : "0"));
  options.of_rank = [which](int rank) {
    return rank == which.culprit ? std::vector<std::string>{std::string("fault=") + which.fault,
                                                            "at_event=" + std::to_string(which.at_event)}
                                 : std::vector<std::string>{};
  };
  return options;
}

/// How many messages a rank has sent and received by the end of the second step.
std::uint64_t events_in_two_steps(kill_case which) {
  rank_job_options options = job_of(which, "");
  options.all[0] = "steps=2";
  options.all.push_back("tell_steps=1");
  options.of_rank = {};
  const rank_job job(options);
  REQUIRE_MESSAGE(watch_to_the_end(job.ranks(), 30s), job.transcript());
  const auto events = job.story(which.culprit).events;
  REQUIRE_MESSAGE(events.size() == 2, job.transcript());
  return events[1];
}

/// Checks a job that is over. The longest time that a survivor took to end.
std::chrono::nanoseconds check(const kill_case& which, const rank_job& job) {
  return check_survivors(which.to_string(), job, which.culprit, "peer lost", [](const rank_story&) {});
}

/// Runs jobs, some at a time.
std::chrono::nanoseconds run_all(const std::vector<kill_case>& cases) {
  constexpr std::size_t jobs_at_once = 4;
  struct running {
    kill_case which;
    std::unique_ptr<rank_job> job;
  };
  const scratch_folder folder;
  std::chrono::nanoseconds longest{0};
  std::deque<running> present;
  const auto finish_first = [&] {
    const running done = std::move(present.front());
    present.pop_front();
    const bool over = watch_to_the_end(done.job->ranks(), 20s);
    CHECK_MESSAGE(over, done.which.to_string() << ": not all have ended" << done.job->transcript());
    if (over) {
      longest = std::max(longest, check(done.which, *done.job));
      CHECK_MESSAGE(watch_until(
                        done.job->ranks(), [&] { return done.job->sockets_left().empty(); }, 20s),
                    done.which.to_string() << ": left sockets");
    }
  };
  for (const kill_case& each : cases) {
    if (present.size() == jobs_at_once) {
      finish_first();
    }
    present.push_back({each, std::make_unique<rank_job>(job_of(each, folder.path()))});
  }
  while (!present.empty()) {
    finish_first();
  }
  CHECK(folder.is_empty());
  return longest;
}

/// Every message of the first two steps and of what comes before; evenly chosen ones where there are many.
std::vector<kill_case> cases_of(kill_case which, std::uint64_t count_max) {
  const std::uint64_t last = events_in_two_steps(which);
  const std::uint64_t count = std::min(last + 1, count_max);
  std::vector<kill_case> cases;
  for (std::uint64_t i = 0; i < count; ++i) {
    which.at_event = count == 1 ? last : i * last / (count - 1);
    cases.push_back(which);
  }
  return cases;
}

void tell(const std::string& what, std::size_t jobs, std::chrono::nanoseconds longest) {
  MESSAGE(what << ": " << jobs << " jobs; the slowest survivor ended after "
               << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() << " ms");
}

}  // namespace

TEST_CASE("a killed rank: at each message of two steps, all others end and name it in the same words") {
  const bool full = std::getenv("GRADWEAVE_TEST_FULL") != nullptr;  // every rank, at every message
  const testing::watchdog guard("killed rank", full ? 1500s : 180s);
  std::vector<kill_case> cases;
  const auto add = [&](const kill_case& which, std::uint64_t count_max) {
    const auto more = cases_of(which, full ? UINT64_MAX : repetitions(count_max));
    cases.insert(cases.end(), more.begin(), more.end());
  };
  add({2, 0, 0, "kill", false, false}, 60);
  add({2, 1, 0, "kill", false, true}, 30);
  add({3, 0, 0, "kill", false, false}, 60);
  add({3, 2, 0, "kill", true, false}, 30);
  add({3, 1, 0, "kill", false, true}, 30);
  add({4, 0, 0, "kill", true, true}, 30);
  add({4, 2, 0, "kill", false, false}, 60);
  if (full) {
    add({4, 1, 0, "kill", false, true}, 0);
    add({4, 3, 0, "kill", true, false}, 0);
  }
  const auto longest = run_all(cases);
  tell("killed rank", cases.size(), longest);
}

TEST_CASE("a rank that is killed between ranks that share memory: at each notice, loan and return of two steps") {
  const bool full = std::getenv("GRADWEAVE_TEST_FULL") != nullptr;
  const testing::watchdog guard("killed in shared memory", full ? 1500s : 180s);
  std::vector<kill_case> cases;
  for (const kill_case& which : {kill_case{2, 0, 0, "kill", false, false, true},
                                 {2, 1, 0, "kill", true, true, true},
                                 {3, 1, 0, "kill", false, true, true},
                                 {4, 3, 0, "kill", false, false, true}}) {
    const auto more = cases_of(which, full ? UINT64_MAX : repetitions(25));
    cases.insert(cases.end(), more.begin(), more.end());
  }
  const auto longest = run_all(cases);
  tell("killed in shared memory", cases.size(), longest);
}

TEST_CASE("a rank that exits in the middle of a step, without a word: as one that is killed") {
  const testing::watchdog guard("exit in a step");
  std::vector<kill_case> cases;
  for (const int size : {2, 3, 4}) {
    const auto more = cases_of({size, size / 2, 0, "exit", size == 3, false}, repetitions(8));
    cases.insert(cases.end(), more.begin(), more.end());
  }
  tell("exiting rank", cases.size(), run_all(cases));
}
