// How fast is a bare all-reduce? The options and the columns are those of nccl-tests; `--limit` measures in turns with it what
// the machine can do without any library, and `--peer` what other libraries do.
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/launch.hpp>

#include "benchmarks/all_reduce/limits.hpp"
#include "benchmarks/all_reduce/measurement.hpp"
#include "benchmarks/all_reduce/options.hpp"
#include "benchmarks/all_reduce/peers.hpp"
#include "benchmarks/command.hpp"

namespace {

using namespace gradweave;
using namespace gradweave::bench;

/// A folder that goes away with everything in it.
class scratch_folder {
 public:
  scratch_folder() : path_((std::filesystem::temp_directory_path() / "gradweave_bench_XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "mkdtemp " + path_);
    }
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

int start_ranks(const bench_options& options, int count, char** arguments) {
  std::optional<segment> memory;
  std::optional<descriptor> inherited;
  std::vector<descriptor> sockets;
  if (options.limit && options.share_memory) {
    memory = segment::create(direct_limit::bytes_for(options.ranks, bytes_of(options.end)));
    inherited.emplace(::dup(memory->handle()));  // stays open in the ranks
    ::setenv(direct_limit::variable, std::to_string(inherited->number()).c_str(), 1);
  } else if (options.limit) {
    sockets = socket_limit::connect(options.ranks);
  }
  const scratch_folder folder;
  ::setenv(peers_folder_variable, folder.path().c_str(), 1);
  std::vector<peer_job> peers;
  for (const std::string& name : options.peers) {
    peers.emplace_back(name, folder.path(), options.ranks, options.share_memory);
    std::printf("# peer %s: %s\n", name.c_str(), peers.back().command().c_str());
  }
  std::fflush(stdout);
  return launch({arguments, static_cast<std::size_t>(count)}, {.ranks = options.ranks, .name_ranks = false});
}

void check(const bench_options& options) {
  find(kinds, options.type, "-d");
  find(operations, options.operation, "-o");
  if (bytes_of(options.begin) > bytes_of(options.end)) {
    throw std::invalid_argument("-b " + options.begin + " is more than -e " + options.end + ": no size is left");
  }
  if (options.limit_pulls && !(options.limit && options.share_memory)) {
    throw std::invalid_argument("--limit-pulls says how --limit works in shared memory");
  }
  if (!options.peers.empty() && (options.type != "float" || options.operation != "sum")) {
    throw std::invalid_argument("--peer compares sums of float; leave out -d and -o");
  }
}

int run(int count, char** arguments) {
  bench_options options;
  CLI::App app("Measures all-reduces of many sizes between processes of this host, or as a rank of a launcher's job.");
  app.option_defaults()->always_capture_default();
  app.add_option("--ranks", options.ranks, "processes")->check(CLI::Range(1, 64));
  app.add_option("-b,--minbytes", options.begin, "the smallest size; K, M and G are understood");
  app.add_option("-e,--maxbytes", options.end, "the largest size");
  app.add_option("-f,--stepfactor", options.factor, "from one size to the next")->check(CLI::Range(2, 1024));
  app.add_option("-n,--iters", options.iterations, "calls a repeat")->check(CLI::Range(1, 1'000'000));
  app.add_option("-w,--warmup_iters", options.warm_ups, "calls before a size is measured");
  app.add_option("-r,--repeats", options.repeats, "of which the median is given")->check(CLI::Range(1, 1000));
  app.add_option("-c,--check", options.check, "compare the results with what they should be: 0 or 1");
  app.add_option("-o,--op", options.operation, "sum, min or max");
  app.add_option("-d,--datatype", options.type, "float, double, half, bfloat16, int32 or int64");
  app.add_option("-J,--json", options.json, "write all figures, each repeat's too, to this file");
  app.add_option("--algorithm", options.algorithm, "as GRADWEAVE_ALGORITHM");
  app.add_option("--share-memory", options.share_memory, "0: by messages over TCP");
  app.add_flag("--limit", options.limit,
               "measure in turns with a direct reduction in shared memory, or with raw sockets without it");
  app.add_flag("--limit-pulls", options.limit_pulls,
               "in the direct reduction ranks copy the sums from each other, instead of writing them to all");
  app.add_option("--peer", options.peers, "measure in turns with gloo, openmpi or mpich")
      ->delimiter(',')
      ->check(CLI::IsMember({"gloo", "openmpi", "mpich"}));
  CLI11_PARSE(app, count, arguments);
  check(options);
  const auto algorithm = algorithm_named(options.algorithm);
  if (!algorithm) {
    throw std::invalid_argument("'" + options.algorithm + "' is no algorithm");
  }
  if (!is_launched()) {
    return start_ranks(options, count, arguments);
  }
  if ((options.limit && std::getenv(direct_limit::variable) == nullptr &&
       std::getenv(socket_limit::variable) == nullptr) ||
      (!options.peers.empty() && std::getenv(peers_folder_variable) == nullptr)) {
    throw std::invalid_argument("--limit and --peer work where this program starts the ranks itself");
  }
  auto place = backend::tcp::options_from_environment({.algorithm = *algorithm});
  place.share_memory = options.share_memory;
  measurement(options, backend::tcp::from_options(place)).run();
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return gradweave::bench::run_command(run, count, arguments); }
