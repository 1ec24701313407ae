#include <gradweave/launch.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/process_table.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// Launches `script` under a shell with `ranks` ranks; stdout goes to a file, and is returned with the status.
struct outcome {
  int status;
  std::string printed;
};

outcome launch_script(const std::string& script, launch_options options) {
  options.program = "/bin/sh";
  std::string shell = "sh", flag = "-c", text = script;
  std::vector<char*> arguments{shell.data(), flag.data(), text.data()};
  std::FILE* caught = std::tmpfile();
  REQUIRE(caught != nullptr);
  std::fflush(stdout);
  const int kept = ::dup(STDOUT_FILENO);
  ::dup2(::fileno(caught), STDOUT_FILENO);
  const int status = launch(arguments, options);
  ::dup2(kept, STDOUT_FILENO);
  ::close(kept);
  std::rewind(caught);
  std::string printed;
  for (int c = std::fgetc(caught); c != EOF; c = std::fgetc(caught)) {
    printed.push_back(static_cast<char>(c));
  }
  std::fclose(caught);
  return {status, printed};
}

}  // namespace

TEST_CASE("launch: gives ranks torchrun's variables, and names them before each line") {
  const testing::watchdog guard("launch variables");
  const auto [status, printed] = launch_script(
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT; printf 'no newline'",
      {.ranks = 3, .port = 1234});
  CHECK(status == 0);
  for (const char* rank : {"0", "1", "2"}) {
    const std::string name = std::string("[rank ") + rank + "] ";
    CHECK(printed.find(name + rank + " " + rank + " 3 3 127.0.0.1 1234\n") != std::string::npos);
    CHECK(printed.find(name + "no newline\n") != std::string::npos);
  }
}

TEST_CASE("launch: returns the status of the rank that failed first, and ends those that do not end by themselves") {
  const testing::watchdog guard("launch failure");
  const auto [status, printed] =
      launch_script("if [ $RANK = 1 ]; then exit 7; else exec sleep 1000; fi", {.ranks = 3, .patience = 200ms});
  CHECK(status == 7);
  CHECK(launch_script("kill -KILL $$", {.ranks = 1}).status == 128 + SIGKILL);
}

TEST_CASE("launch: a program that is not there is a failure") {
  const testing::watchdog guard("launch nothing");
  std::string name = "nothing";
  std::vector<char*> arguments{name.data()};
  CHECK(launch(arguments, {.ranks = 1, .program = "/no/such/program"}) == 127);
  CHECK_THROWS_AS(launch(arguments, {.ranks = 0}), contract_violation);
}

TEST_CASE("launch: passes on a signal") {
  const testing::watchdog guard("launch signal");
  const pid_t launching = ::fork();
  REQUIRE(launching >= 0);
  if (launching == 0) {
    std::string shell = "sh", flag = "-c", text = "trap 'exit 0' TERM; while true; do sleep 0.05; done";
    std::vector<char*> arguments{shell.data(), flag.data(), text.data()};
    ::_exit(launch(arguments, {.ranks = 2, .program = "/bin/sh", .patience = 20s}));
  }
  std::this_thread::sleep_for(300ms);
  ::kill(launching, SIGTERM);
  int outcome = 0;
  CHECK(::waitpid(launching, &outcome, 0) == launching);
  CHECK(WIFEXITED(outcome));
  CHECK(WEXITSTATUS(outcome) == 128 + SIGTERM);
}

TEST_CASE("launch: of ranks that end before it looks, the first one's status is returned") {
  const testing::watchdog guard("launch order");
  std::array<std::array<int, 2>, 2> pipes{};  // each rank waits for a line from its own
  for (auto& each : pipes) {
    REQUIRE(::pipe(each.data()) == 0);
  }
  const pid_t launching = ::fork();
  REQUIRE(launching >= 0);
  if (launching == 0) {
    std::string shell = "sh", flag = "-c",
                text = "if [ $RANK = 0 ]; then read line <&" + std::to_string(pipes[0][0]) +
                       "; exit 3; else read line <&" + std::to_string(pipes[1][0]) + "; kill -KILL $$; fi";
    std::vector<char*> arguments{shell.data(), flag.data(), text.data()};
    ::_exit(launch(arguments, {.ranks = 2, .program = "/bin/sh", .name_ranks = false}));
  }
  const auto wait_for_children = [&](std::size_t wanted, bool ended) {
    for (std::size_t found = 0; found != wanted; std::this_thread::sleep_for(5ms)) {
      found = 0;
      for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const auto status = process_status(entry.path().filename());
        found += !status.empty() && status[1] == std::to_string(launching) && (!ended || status[0] == "Z");
      }
    }
  };
  wait_for_children(2, false);
  ::kill(launching, SIGSTOP);
  int outcome = 0;
  REQUIRE(::waitpid(launching, &outcome, WUNTRACED) == launching);
  REQUIRE(WIFSTOPPED(outcome));
  std::size_t ended = 0;
  for (const std::size_t rank : {1U, 0U}) {
    REQUIRE(::write(pipes[rank][1], "\n", 1) == 1);
    wait_for_children(++ended, true);
  }
  ::kill(launching, SIGCONT);
  REQUIRE(::waitpid(launching, &outcome, 0) == launching);
  CHECK(WIFEXITED(outcome));
  CHECK(WEXITSTATUS(outcome) == 128 + SIGKILL);
  for (const auto& each : pipes) {
    ::close(each[0]);
    ::close(each[1]);
  }
}

TEST_CASE("launch: no rank outlives a launcher that is killed") {
  const testing::watchdog guard("launch killed");
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t launching = ::fork();
  REQUIRE(launching >= 0);
  if (launching == 0) {
    ::close(ends[0]);
    std::string shell = "sh", flag = "-c", text = "echo here >&9; exec sleep 1000";
    ::dup2(ends[1], 9);
    ::close(ends[1]);
    std::vector<char*> arguments{shell.data(), flag.data(), text.data()};
    ::_exit(launch(arguments, {.ranks = 2, .program = "/bin/sh"}));
  }
  ::close(ends[1]);
  char room[64];
  std::size_t said = 0;
  while (said < 2 * 5) {  // both ranks are there
    const ssize_t count = ::read(ends[0], room, sizeof room);
    REQUIRE(count > 0);
    said += static_cast<std::size_t>(count);
  }
  ::kill(launching, SIGKILL);
  int outcome = 0;
  ::waitpid(launching, &outcome, 0);
  CHECK(::read(ends[0], room, sizeof room) == 0);  // nobody holds the other end any more
  ::close(ends[0]);
}

TEST_CASE("is_launched: by any launcher's rank") {
  CHECK_FALSE(is_launched());
  ::setenv("OMPI_COMM_WORLD_RANK", "0", 1);
  CHECK(is_launched());
  ::unsetenv("OMPI_COMM_WORLD_RANK");
}
