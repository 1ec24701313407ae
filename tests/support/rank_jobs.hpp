/// @file
/// Jobs of tests/faults/rank_program.cpp: their processes, and what they tell.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/launch.hpp>

#include "tests/support/processes.hpp"

namespace gradweave::tests {

/// What one rank told of its end.
struct rank_story {
  std::string code;  // of a sync_error, in words; "other" for another exception, "end" where all was well, else empty
  int rank = -1;
  std::int64_t step = -1;
  std::int64_t bucket = -1;
  std::string slots;
  std::string sentence;
  std::optional<std::chrono::steady_clock::time_point> fault_at;  // where it failed by itself
  std::optional<std::chrono::steady_clock::time_point> told_at;
  std::vector<std::pair<std::string, std::string>> connections;  // own end, the peer's
  std::vector<std::uint64_t> events;                             // counted until the end of each step
};

inline rank_story read_story(const std::string& printed) {
  rank_story told;
  const auto time = [](const std::string& nanoseconds) {
    return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(std::stoll(nanoseconds)));
  };
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> parts;
    std::istringstream words(line);
    const char between = line.find('\t') == std::string::npos ? ' ' : '\t';
    for (std::string part; std::getline(words, part, between);) {
      parts.push_back(part);
    }
    const std::string kind = parts.empty() ? "" : parts[0];
    if (kind == "error" && parts.size() == 8) {
      told.told_at = time(parts[1]);
      told.code = parts[2];
      told.rank = std::stoi(parts[3]);
      told.step = std::stoll(parts[4]);
      told.bucket = std::stoll(parts[5]);
      told.slots = parts[6];
      told.sentence = parts[7];
    } else if (kind == "other" && parts.size() == 3) {
      told.told_at = time(parts[1]);
      told.code = kind;
      told.sentence = parts[2];
    } else if (kind == "end" && parts.size() == 2) {
      told.told_at = time(parts[1]);
      told.code = kind;
    } else if (kind == "fault" && parts.size() == 2) {
      told.fault_at = time(parts[1]);
    } else if (kind == "connection" && parts.size() == 3) {
      told.connections.emplace_back(parts[1], parts[2]);
    } else if (kind == "step" && parts.size() == 3) {
      told.events.push_back(std::stoull(parts[2]));
    }
  }
  return told;
}

/// What a job is started with.
struct rank_job_options {
  int size = 2;
  std::vector<std::string> all = {};                               // arguments of every rank, NAME=VALUE
  std::function<std::vector<std::string>(int rank)> of_rank = {};  // and further ones
  std::string address = "127.0.0.1";
  std::vector<std::string> variables = {};  // of every rank
  std::function<std::function<bool()>(int)> prepare_of =
      {};  // what each does before its program, as process_command::prepare
  std::string folder = {};
};

/// Processes that are the ranks of one job.
class rank_job {
 public:
  explicit rank_job(const rank_job_options& options) : port_(0) {
    static const std::string program = program_of_the_build("GRADWEAVE_RANK_PROGRAM", "tests/rank_program");
    for (int rank = 0; rank < options.size; ++rank) {
      process_command what{{program}, options.variables, {}, options.folder};
      for (const std::string& each :
           {"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(options.size),
            "MASTER_ADDR=" + options.address, "MASTER_PORT=" + std::to_string(port_.number())}) {
        what.variables.push_back(each);
      }
      what.arguments.insert(what.arguments.end(), options.all.begin(), options.all.end());
      if (options.of_rank) {
        const auto more = options.of_rank(rank);
        what.arguments.insert(what.arguments.end(), more.begin(), more.end());
      }
      if (options.prepare_of) {
        what.prepare = options.prepare_of(rank);
      }
      ranks_.push_back(std::make_unique<process>(what));
    }
  }

  const process_list& ranks() const { return ranks_; }
  process& rank(int which) const { return *ranks_[static_cast<std::size_t>(which)]; }
  rank_story story(int which) const { return read_story(rank(which).printed()); }
  std::uint16_t port() const { return port_.number(); }

  /// Everything that was printed, for a failing test.
  std::string transcript() const {
    std::string all;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::istringstream lines(ranks_[rank]->printed());
      for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("connection ") && !line.starts_with("step ")) {
          all += "\n  [rank " + std::to_string(rank) + "] " + line;
        }
      }
      all += "\n  [rank " + std::to_string(rank) + "] " +
             (ranks_[rank]->ended() ? "ended with " + std::to_string(ranks_[rank]->status()) : "has not ended");
    }
    return all;
  }

  /// Connections of this job, and who listens at its port, that the kernel of this host still has. TIME_WAIT, the mark of
  /// an end that both sides agreed on, is none.
  std::vector<std::string> sockets_left() const {
    std::vector<std::string> left;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
      std::ifstream lines(table);
      std::string line;
      std::getline(lines, line);  // the heading
      while (std::getline(lines, line)) {
        std::istringstream words(line);
        std::string number, own, peer, state;
        words >> number >> own >> peer >> state;
        const std::uint16_t own_port = port_in(own);
        const bool listens = state == "0A" && own_port == port_.number();
        if (state != "06" && (listens || is_connection(own_port, port_in(peer)))) {
          left.push_back(line);
        }
      }
    }
    return left;
  }

 private:
  static std::uint16_t port_in(const std::string& place) {  // ADDRESS:PORT, in hexadecimal
    return static_cast<std::uint16_t>(std::stoul(place.substr(place.rfind(':') + 1), nullptr, 16));
  }

  bool is_connection(std::uint16_t own, std::uint16_t peer) const {
    const auto ends_with = [](const std::string& place, std::uint16_t port) {
      return place.ends_with(":" + std::to_string(port));
    };
    for (const auto& each : ranks_) {
      for (const auto& [from, to] : read_story(each->printed()).connections) {
        if ((ends_with(from, own) && ends_with(to, peer)) || (ends_with(from, peer) && ends_with(to, own))) {
          return true;
        }
      }
    }
    return false;
  }

  detail::reserved_port port_;
  process_list ranks_;
};

/// Checks of a job in which `culprit` failed that every other rank ended with an error of that code which names it, all
/// in the same words; `also(story)` checks more of each. The longest time from the fault until one ended.
template <class Also>
std::chrono::nanoseconds check_survivors(const std::string& name, const rank_job& job, int culprit,
                                         const std::string& code, Also&& also) {
  const rank_story cause = job.story(culprit);
  REQUIRE_MESSAGE(cause.fault_at.has_value(), name << job.transcript());
  std::chrono::nanoseconds longest{0};
  std::optional<std::string> sentence;
  for (int rank = 0; rank < static_cast<int>(job.ranks().size()); ++rank) {
    if (rank == culprit) {
      continue;
    }
    const rank_story told = job.story(rank);
    sentence = sentence.value_or(told.sentence);
    CHECK_MESSAGE(job.rank(rank).status() == 1, name << job.transcript());
    CHECK_MESSAGE(told.code == code, name << job.transcript());
    CHECK_MESSAGE(told.rank == culprit, name << job.transcript());
    CHECK_MESSAGE(told.sentence == *sentence, name << job.transcript());
    also(told);
    longest = std::max<std::chrono::nanoseconds>(longest, job.rank(rank).ended_at() - *cause.fault_at);
  }
  return longest;
}

}  // namespace gradweave::tests
