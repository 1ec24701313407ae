// Law 3 against the peer: for given gradients of each rank PyTorch's DistributedDataParallel and this library come to the same, up
// to rounding. Skipped where Debian's python3-torch is not installed, and under sanitizers, which do not see that side.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/processes.hpp"
#include "tests/support/program.hpp"
#include "tests/support/program_run.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/scratch_folder.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

constexpr std::size_t sizes[] = {2, 3};
constexpr std::size_t programs_of_a_size = 40;
constexpr int no_torch = 77;

/// A random program that DistributedDataParallel can run too.
program common_program(std::size_t ranks, std::uint64_t seed) {
  program what = random_program(seed);
  const program usual;
  what.ranks = ranks;
  what.buffers.clear();
  what.directions = usual.directions;
  what.recorded_uses = false;
  what.average = usual.average;
  what.divide = usual.divide;
  what.joined_left_out = seed % 2 == 0;
  what.compression = usual.compression;
  for (program_slot& slot : what.slots) {
    slot.format = slot.format == number_format::float64 ? slot.format : number_format::float32;
    slot.elements += slot.elements == 0 ? 1 : 0;
  }
  for (program_step& step : what.steps) {
    step.direction = 0;
    step.wrong = mishap::nothing;
    for (program_pass& pass : step.passes) {
      for (std::uint32_t& used : pass.used) {
        used = what.zero_fill ? used : (1U << what.slots.size()) - 1;
      }
    }
  }
  return what;
}

std::vector<program> common_programs(std::size_t ranks) {
  std::vector<program> all;
  for (std::uint64_t seed = 1; seed <= programs_of_a_size; ++seed) {
    all.push_back(common_program(ranks, seed));
  }
  return all;
}

/// What one rank does in a program, as ddp_rank.py reads it.
std::string to_json(const program& what, std::size_t rank) {
  std::ostringstream text;
  const auto list = [&](std::size_t begin, std::size_t end, auto&& write) {
    text << "[";
    for (std::size_t i = begin; i < end; ++i) {
      text << (i == begin ? "" : ",");
      write(i);
    }
    text << "]";
  };
  bool uneven = false;
  std::size_t steps = 0;
  for (std::size_t s = 0; s < what.steps.size(); ++s) {
    for (std::size_t other = 0; other < what.ranks; ++other) {
      uneven = uneven || !what.has_data(other, s);
    }
    steps += what.has_data(rank, s) ? 1 : 0;
  }
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  text << "{\"zero_fill\":" << flag(what.zero_fill) << ",\"joined_left_out\":" << flag(what.joined_left_out)
       << ",\"uneven\":" << flag(uneven) << ",\"slots\":";
  list(0, what.slots.size(), [&](std::size_t s) {
    text << "[\"" << element_name(kind_of(what.slots[s].format)) << "\"," << what.slots[s].elements << "]";
  });
  text << ",\"steps\":";
  list(0, steps, [&](std::size_t number) {
    const program_step& step = what.steps[number];
    list(0, step.passes.size(), [&](std::size_t pass) {
      std::vector<std::size_t> used;
      for (std::size_t s = 0; s < what.slots.size(); ++s) {
        if ((step.passes[pass].used[rank] >> s & 1) != 0) {
          used.push_back(s);
        }
      }
      list(0, used.size(), [&](std::size_t u) {
        text << "{\"slot\":" << used[u] << ",\"times\":" << what.times(rank, number, used[u]) << ",\"gradient\":";
        list(0, what.slots[used[u]].elements,
             [&](std::size_t i) { text << what.gradient(rank, number, pass, used[u], i); });
        text << "}";
      });
    });
  });
  text << "}";
  return text.str();
}

void write_jobs(const scratch_folder& folder) {
  for (std::size_t rank = 0; rank < sizes[1]; ++rank) {
    std::ofstream file(folder.path("rank" + std::to_string(rank) + ".json"));
    const char* between_sizes = "[";
    for (const std::size_t size : sizes) {
      if (rank < size) {
        file << between_sizes << "[" << size << ",";
        const char* between = "[";
        for (const program& what : common_programs(size)) {
          file << between << to_json(what, rank);
          between = ",\n";
        }
        file << "]]";
        between_sizes = ",";
      }
    }
    file << "]";
  }
}

/// The slots that some rank uses in the last pass of a step.
std::uint32_t used_last(const program& what, std::size_t step) {
  std::uint32_t used = 0;
  for (std::size_t rank = 0; rank < what.ranks; ++rank) {
    used |= what.has_data(rank, step) ? what.steps[step].passes.back().used[rank] : 0;
  }
  return used;
}

/// One line of a rank's output against what this library has; empty where they agree.
std::string line_fault(const std::string& line, const std::vector<double>& ours,
                       const std::vector<expected_value>& expected, double unit) {
  if (line == "none") {
    return "was not used there";
  }
  const char* next = line.c_str();
  for (std::size_t i = 0; i < ours.size(); ++i) {
    char* end = nullptr;
    const double theirs = std::strtod(next, &end);
    if (end == next) {
      return "has another number of elements";
    }
    next = end;
    if (!(std::abs(theirs - ours[i]) <= unit * expected[i].magnitude)) {
      return "element " + std::to_string(i) + " is " + std::to_string(theirs) + " there, " + std::to_string(ours[i]) +
             " here";
    }
  }
  return *next == '\0' ? "" : "has another number of elements";
}

void compare(const program& what, rank_threads& threads, std::vector<std::istringstream>& theirs) {
  const std::vector<rank_outcome> ours = run_program(what, network::loopback, threads);
  const expectation expected = run_reference(what);
  const std::string text = to_text(what);
  for (std::size_t rank = 0; rank < what.ranks; ++rank) {
    for (std::size_t s = 0; s < what.steps.size() && what.has_data(rank, s); ++s) {
      REQUIRE_MESSAGE(ours[rank].after.size() > s, text);
      for (std::size_t slot = 0; slot < what.slots.size(); ++slot) {
        std::string line;
        REQUIRE(std::getline(theirs[rank], line));
        const bool used = (expected.after[s][rank].used >> slot & 1) != 0;
        const double unit = 2 * static_cast<double>(what.ranks) * unit_roundoff(kind_of(what.slots[slot].format));
        std::string fault;
        if (!used) {
          // In joins, after accumulations, it makes zeros of what nobody has used.
          const bool untouched = line == "none" || line.find_first_not_of("0x.p+- ") == std::string::npos;
          fault = untouched ? "" : "was used there";
        } else if ((used_last(what, s) >> slot & 1) != 0) {
          fault = line_fault(line, ours[rank].after[s].slots[slot], expected.after[s][rank].slots[slot], unit);
        }  // Else it leaves on each rank what that has accumulated; this library averages it.
        CHECK_MESSAGE(fault.empty(), "rank " << rank << ", step " << s << ", slot " << slot << ": " << fault << "\n"
                                             << text);
      }
    }
  }
}

}  // namespace

TEST_CASE("DistributedDataParallel: the same gradients up to rounding, accumulated, unused, and of uneven inputs") {
  const std::string python = "/usr/bin/python3";
  if (is_brief() || !std::filesystem::exists(python)) {
    MESSAGE("skipped: where tests are brief, or without " << python);
    return;
  }
  const testing::watchdog guard("DistributedDataParallel");
  const scratch_folder folder;
  write_jobs(folder);
  process_list ranks;
  for (std::size_t rank = 0; rank < sizes[1]; ++rank) {
    ranks.push_back(std::make_unique<process>(process_command{
        {python, std::filesystem::absolute("tests/laws/ddp_rank.py"), folder.path(), std::to_string(rank)},
        {"GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1"}}));
  }
  const auto failed = [](const auto& rank) { return rank->ended() && rank->status() != 0; };
  const auto is_over = [&] {
    return std::any_of(ranks.begin(), ranks.end(), failed) ||
           std::all_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank->ended(); });
  };
  REQUIRE_MESSAGE(watch_until(ranks, is_over, std::chrono::seconds(50)), "DistributedDataParallel does not end");
  if (const auto first = std::find_if(ranks.begin(), ranks.end(), failed); first != ranks.end()) {
    REQUIRE_MESSAGE((*first)->status() == no_torch, (*first)->printed());
    MESSAGE("skipped: " << (*first)->printed());
    return;
  }
  std::vector<std::istringstream> theirs;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    theirs.emplace_back(folder.read("rank" + std::to_string(rank) + ".out"));
  }
  rank_threads threads;
  for (const std::size_t size : sizes) {
    for (const program& what : common_programs(size)) {
      compare(what, threads, theirs);
    }
  }
}
