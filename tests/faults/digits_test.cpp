// examples/digits, of which one process is killed at a random moment: nobody goes on, and nobody is left.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/process_table.hpp"
#include "tests/support/processes.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// The children of a process that have begun their program as ranks: their numbers as ranks, and their ids.
std::vector<std::pair<int, pid_t>> ranks_of(pid_t launcher) {
  std::vector<std::pair<int, pid_t>> found;
  for (const auto& each : std::filesystem::directory_iterator("/proc")) {
    const std::string name = each.path().filename();
    const auto status = process_status(name);
    if (status.empty() || status[1] != std::to_string(launcher)) {
      continue;
    }
    std::ifstream variables("/proc/" + name + "/environ");
    for (std::string variable; std::getline(variables, variable, '\0');) {
      if (variable.starts_with("RANK=")) {
        found.emplace_back(std::stoi(variable.substr(5)), std::stoi(name));
      }
    }
  }
  return found;
}

/// Whether none of them is left. They give up their outputs before they are gone.
bool gone(const std::vector<std::pair<int, pid_t>>& ranks) {
  const auto is_gone = [](const auto& each) {
    const auto status = process_status(std::to_string(each.second));
    return status.empty() || status[0] == "Z";
  };
  return watch_until({}, [&] { return std::all_of(ranks.begin(), ranks.end(), is_gone); }, 20s);
}

std::unique_ptr<process> start(int ranks, const std::string& folder) {
  const std::string program = program_of_the_build("GRADWEAVE_DIGITS", "examples/digits");
  const std::string data = program_of_the_build("GRADWEAVE_DIGITS_DATA", "examples/data/digits.csv");
  return std::make_unique<process>(
      process_command{.arguments = {program, "--epochs", "100000", "--ranks", std::to_string(ranks), "--data", data},
                      .folder = folder});
}

/// What each rank but the killed one said last: the sentence behind "digits, rank 1: ".
std::vector<std::string> last_words(const std::string& printed, int ranks, int killed) {
  std::vector<std::string> words;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string speaker = "digits, rank " + std::to_string(rank) + ": ";
    const std::size_t begin = printed.find(speaker);
    if (rank != killed) {
      words.push_back(begin == std::string::npos
                          ? "nothing"
                          : printed.substr(begin + speaker.size(), printed.find('\n', begin) - begin - speaker.size()));
    }
  }
  return words;
}

}  // namespace

TEST_CASE("digits: killed at 50 random moments of its training, all of its processes end and name the killed rank") {
  const testing::watchdog guard("digits killed", 240s);
  constexpr unsigned seed = 20;
  std::mt19937 random(seed);
  const scratch_folder folder;
  std::chrono::nanoseconds longest{0};
  for (std::size_t moment = 0; moment < repetitions(50); ++moment) {
    const int ranks = 2 + static_cast<int>(moment % 2);
    process_list jobs;
    jobs.push_back(start(ranks, folder.path()));
    process& launcher = *jobs[0];
    CAPTURE(seed);
    CAPTURE(moment);
    REQUIRE_MESSAGE(watch_until(jobs, [&] { return launcher.has_printed("epoch 1 of "); }, 30s), launcher.printed());
    const auto all = ranks_of(launcher.id());
    REQUIRE(all.size() == static_cast<std::size_t>(ranks));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));

    const int killed = static_cast<int>(random() % 8) - 1;  // the launcher itself now and then
    const auto victim = killed < 0 ? std::pair(-1, launcher.id()) : all[static_cast<std::size_t>(killed % ranks)];
    const auto killed_at = process::clock::now();
    ::kill(victim.second, SIGKILL);
    REQUIRE_MESSAGE(watch_to_the_end(jobs, 20s), "some process goes on" << launcher.printed());
    longest = std::max<std::chrono::nanoseconds>(longest, process::clock::now() - killed_at);

    // Usually 128 + SIGKILL; but a rank that fails since another is gone may be gone itself before that is.
    CHECK(launcher.status() != 0);
    if (victim.first >= 0) {
      const auto words = last_words(launcher.printed(), ranks, victim.first);
      for (const std::string& each : words) {
        CHECK_MESSAGE(each == words[0], launcher.printed());
        CHECK_MESSAGE(each.starts_with("rank " + std::to_string(victim.first) + ", step "), launcher.printed());
        CHECK_MESSAGE(each.find("peer lost") != std::string::npos, launcher.printed());
      }
    }
    CHECK(gone(all));
  }
  CHECK(folder.is_empty());
  MESSAGE(std::string("digits killed in its training: the last process ended after ")
          << std::chrono::duration_cast<std::chrono::milliseconds>(longest).count() << " ms");
}

TEST_CASE("digits: killed while its ranks start and meet, all of its processes end") {
  const testing::watchdog guard("digits killed at its start", 120s);
  constexpr unsigned seed = 21;
  std::mt19937 random(seed);
  const scratch_folder folder;
  process_list jobs;
  std::vector<process::clock::time_point> kill_at;
  std::vector<std::pair<int, pid_t>> victims(8, {-1, 0});
  std::vector<std::vector<std::pair<int, pid_t>>> ranks(victims.size());
  for (std::size_t job = 0; job < victims.size(); ++job) {
    kill_at.push_back(process::clock::now() + std::chrono::milliseconds(random() % 400));
    jobs.push_back(start(3, folder.path()));
  }
  std::size_t killed = 0;
  CAPTURE(seed);
  const bool all_killed = watch_until(
      jobs,
      [&] {
        for (std::size_t job = 0; job < victims.size(); ++job) {
          if (victims[job].second == 0 && process::clock::now() > kill_at[job]) {
            ranks[job] = ranks_of(jobs[job]->id());
            if (ranks[job].size() == 3) {
              victims[job] = ranks[job][random() % 3];
              ::kill(victims[job].second, SIGKILL);
              ++killed;
            }
          }
        }
        return killed == victims.size();
      },
      20s);
  REQUIRE(all_killed);
  const auto all_killed_at = process::clock::now();
  CHECK_MESSAGE(watch_to_the_end(jobs, 30s), "some process goes on");
  const auto took = process::clock::now() - all_killed_at;
  for (std::size_t job = 0; job < victims.size(); ++job) {
    CHECK_MESSAGE((jobs[job]->ended() && jobs[job]->status() != 0), jobs[job]->printed());
    CHECK(gone(ranks[job]));
  }
  CHECK(folder.is_empty());
  MESSAGE(std::string("digits killed at its start: the last process ended after ")
          << std::chrono::duration_cast<std::chrono::milliseconds>(took).count() << " ms");
}
