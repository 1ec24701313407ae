/// @file
/// Processes that a test starts, reads from, waits for, and never leaves behind. Linux.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/scratch_folder.hpp"

namespace gradweave::tests {

/// What a process runs.
struct process_command {
  std::vector<std::string> arguments;       // the first is the program
  std::vector<std::string> variables = {};  // NAME=VALUE, added to this process's own
  std::function<bool()> prepare =
      {};                   // called in the child before the program; where it is false, the child ends with 126
  std::string folder = {};  // in which it runs, where there is one
};

/// A child whose two outputs come through one pipe. Where it still runs when this goes, it is killed; it also ends with
/// the thread that started it.
class process {
 public:
  using clock = std::chrono::steady_clock;

  explicit process(const process_command& what) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw std::system_error(errno, std::generic_category(), "pipe2");
    }
    std::vector<std::string> texts = what.arguments;
    std::vector<char*> arguments;
    for (std::string& each : texts) {
      arguments.push_back(each.data());
    }
    arguments.push_back(nullptr);
    const pid_t parent = ::getpid();
    id_ = ::fork();
    if (id_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const std::string& each : what.variables) {
        ::putenv(const_cast<char*>(each.c_str()));
      }
      const bool ready = ::dup2(ends[1], STDOUT_FILENO) >= 0 && ::dup2(ends[1], STDERR_FILENO) >= 0 &&
                         (what.folder.empty() || ::chdir(what.folder.c_str()) == 0) &&
                         (!what.prepare || what.prepare()) &&
                         ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&  // again: a change of rights undoes it
                         ::getppid() == parent;
      if (ready) {
        ::execvp(arguments[0], arguments.data());
      }
      ::_exit(ready ? 127 : 126);
    }
    ::close(ends[1]);
    output_ = ends[0];
    ::fcntl(output_, F_SETFL, O_NONBLOCK);
    if (id_ < 0) {
      ::close(output_);
      throw std::system_error(errno, std::generic_category(), "fork");
    }
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;

  ~process() {
    if (!status_) {
      ::kill(id_, SIGKILL);
      ::kill(id_, SIGCONT);
      (void)::waitpid(id_, nullptr, 0);
    }
    close_output();
  }

  pid_t id() const { return id_; }
  void signal(int number) { ::kill(id_, number); }

  /// Both outputs, as far as they have come. They are over once nobody holds them any more, children of the child
  /// included.
  const std::string& printed() const { return printed_; }
  bool output_is_over() const { return output_ < 0; }
  bool has_printed(const std::string& part) const { return printed_.find(part) != std::string::npos; }

  /// Whether it has ended; then when that was seen, and how: 128 and the signal's number for one that was killed.
  bool ended() const { return status_.has_value(); }
  clock::time_point ended_at() const { return ended_at_; }
  int status() const {
    const int outcome = status_.value();
    return WIFSIGNALED(outcome) ? 128 + WTERMSIG(outcome) : WEXITSTATUS(outcome);
  }

  bool stopped() const { return stopped_; }

  /// Takes note of what has happened.
  void look() {
    std::array<char, 4096> room;
    while (output_ >= 0) {
      const ssize_t count = ::read(output_, room.data(), room.size());
      if (count > 0) {
        printed_.append(room.data(), static_cast<std::size_t>(count));
      } else if (count == 0) {
        close_output();
      } else if (errno != EINTR) {
        break;
      }
    }
    int outcome = 0;
    if (!status_ && ::waitpid(id_, &outcome, WNOHANG | WUNTRACED | WCONTINUED) == id_) {
      stopped_ = WIFSTOPPED(outcome);
      if (WIFEXITED(outcome) || WIFSIGNALED(outcome)) {
        status_ = outcome;
        ended_at_ = clock::now();
      }
    }
  }

  int output() const { return output_; }

 private:
  void close_output() {
    if (output_ >= 0) {
      ::close(std::exchange(output_, -1));
    }
  }

  pid_t id_ = -1;
  int output_ = -1;
  std::string printed_;
  std::optional<int> status_;
  clock::time_point ended_at_{};
  bool stopped_ = false;
};

using process_list = std::vector<std::unique_ptr<process>>;

/// Watches processes until `done()`, at most `limit` long, as GRADWEAVE_TEST_TIMEOUT_S scales it. Returns what `done` said
/// last.
template <class Done>
bool watch_until(const process_list& all, Done&& done, std::chrono::milliseconds limit) {
  const auto until = process::clock::now() + testing::watchdog::scaled(limit);
  for (;;) {
    std::vector<pollfd> outputs;
    for (const auto& each : all) {
      each->look();
      if (!each->output_is_over()) {
        outputs.push_back({each->output(), POLLIN, 0});
      }
    }
    if (done()) {
      return true;
    }
    if (process::clock::now() > until) {
      return false;
    }
    constexpr int milliseconds = 5;  // an end without an output is noticed then
    (void)::poll(outputs.data(), outputs.size(), milliseconds);
  }
}

/// Whether all end, and nobody holds their outputs any more, within `limit`.
inline bool watch_to_the_end(const process_list& all, std::chrono::milliseconds limit) {
  return watch_until(
      all,
      [&] {
        return std::all_of(all.begin(), all.end(),
                           [](const auto& each) { return each->ended() && each->output_is_over(); });
      },
      limit);
}

/// A program of the build: where a variable names it, that; else the path below the folder of the build's outputs in which
/// tests run.
inline std::string program_of_the_build(const char* variable, const char* path) {
  const char* named = std::getenv(variable);
  const std::string found = std::filesystem::absolute(named == nullptr ? path : named);
  if (!std::filesystem::exists(found)) {
    throw std::runtime_error("there is no program " + found + "; build it, or let " + variable + " name it");
  }
  return found;
}

}  // namespace gradweave::tests
