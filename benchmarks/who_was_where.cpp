// Where was each rank when the job hung or failed? Reads the dumps of all ranks, which GRADWEAVE_DEBUG=detail makes them
// write: who_was_where PREFIX.*.dump
#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gradweave/diagnostics/dump.hpp>

#include "benchmarks/command.hpp"

namespace {

int run(int count, char** arguments) {
  if (count < 2) {
    throw std::invalid_argument("give the dumps of all ranks: who_was_where PREFIX.*.dump");
  }
  std::vector<gradweave::rank_dump> dumps;
  for (int i = 1; i < count; ++i) {
    std::ifstream in(arguments[i]);
    if (!in) {
      throw std::invalid_argument(std::string(arguments[i]) + " can't be read");
    }
    try {
      dumps.push_back(gradweave::read_dump(in));
    } catch (const std::exception& fault) {
      throw std::runtime_error(std::string(arguments[i]) + ": " + fault.what());
    }
  }
  std::fputs(gradweave::who_was_where(dumps).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return gradweave::bench::run_command(run, count, arguments); }
