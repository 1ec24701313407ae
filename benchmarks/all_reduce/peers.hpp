// Other libraries in the same run: their ranks are processes of benchmarks/peers, which take turns with gradweave's. The
// launching process starts them, rank 0 tells them by named pipes what to do, and they sleep in between.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/descriptor.hpp>

namespace gradweave::bench {

struct known_peer {
  const char* name;
  const char* package;
};
inline constexpr std::array known_peers = {known_peer{"gloo", "libgloo-dev"}, known_peer{"openmpi", "libopenmpi-dev"},
                                           known_peer{"mpich", "libmpich-dev"}};

inline constexpr const char* peers_folder_variable = "GRADWEAVE_BENCH_PEERS";

inline std::string command_pipe(const std::string& folder, int rank) {
  return folder + "/command." + std::to_string(rank);
}
inline std::string answer_pipe(const std::string& folder) { return folder + "/answer"; }

inline descriptor open_pipe(const std::string& path, int how) {
  descriptor opened(::open(path.c_str(), how | O_CLOEXEC));
  if (!opened) {
    throw std::system_error(errno, std::generic_category(), "opening " + path);
  }
  return opened;
}

/// The processes of one peer. They end when this goes.
class peer_job {
 public:
  /// In a folder of its own below `folder`.
  peer_job(const std::string& name, const std::string& folder, int ranks, bool share_memory)
      : folder_(folder + "/" + name) {
    std::filesystem::create_directory(folder_);
    for (int rank = 0; rank < ranks; ++rank) {
      make_pipe(command_pipe(folder_, rank));
    }
    make_pipe(answer_pipe(folder_));
    const std::string program = program_of(name);
    if (name == "gloo") {
      for (int rank = 0; rank < ranks; ++rank) {
        start({program, folder_, std::to_string(rank), std::to_string(ranks)});
      }
    } else {
      auto arguments = name == "openmpi" ? open_mpi(ranks, share_memory) : mpich(ranks, share_memory);
      arguments.insert(arguments.end(), {program, folder_});
      start(arguments);
    }
  }
  peer_job(peer_job&& other) = default;
  peer_job& operator=(peer_job&& other) = delete;

  ~peer_job() {
    pipes_.clear();  // whoever waits for a command sees the end of the pipe
    for (const pid_t each : processes_) {
      ::waitpid(each, nullptr, 0);
    }
  }

  /// With what settings it runs.
  const std::string& command() const { return command_; }

 private:
  // Temporaries of the heap otherwise cost half of their time at large sizes.
  static std::vector<std::string> tuned_malloc() {
    return {"env", "MALLOC_MMAP_THRESHOLD_=2147483647", "MALLOC_TRIM_THRESHOLD_=4294967296",
            "MALLOC_TOP_PAD_=268435456"};
  }

  static std::vector<std::string> open_mpi(int ranks, bool share_memory) {
    auto arguments = tuned_malloc();
    arguments.insert(arguments.end(), {"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"});
    if (static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) {
      arguments.insert(arguments.end(), {"--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"});
    }
    if (!share_memory) {
      arguments.insert(arguments.end(), {"--mca", "pml", "ob1", "--mca", "btl", "self,tcp"});
    }
    arguments.insert(arguments.end(), {"-n", std::to_string(ranks)});
    return arguments;
  }

  static std::vector<std::string> mpich(int ranks, bool share_memory) {
    auto arguments = tuned_malloc();
    if (!share_memory) {
      arguments.insert(arguments.end(), {"MPIR_CVAR_NOLOCAL=1", "UCX_TLS=tcp,self"});
    }
    arguments.insert(arguments.end(), {"mpirun.mpich", "-n", std::to_string(ranks)});
    return arguments;
  }

  /// It is built beside this program, where its library is there.
  static std::string program_of(const std::string& name) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / ("peer_" + name);
    if (!std::filesystem::exists(program)) {
      const auto known =
          std::find_if(known_peers.begin(), known_peers.end(), [&](const auto& each) { return each.name == name; });
      throw std::runtime_error("--peer " + name + ": " + program.string() + " was not built: install " +
                               known->package + " (./setup.sh --peers does) and build again");
    }
    return program;
  }

  /// Kept open for reading and writing, so that nobody waits for somebody to open the other end.
  void make_pipe(const std::string& path) {
    if (::mkfifo(path.c_str(), 0600) != 0) {
      throw std::system_error(errno, std::generic_category(), "mkfifo " + path);
    }
    pipes_.push_back(open_pipe(path, O_RDWR));
  }

  void start(std::vector<std::string> arguments) {
    command_.clear();
    std::vector<char*> words;
    for (std::string& each : arguments) {
      command_ += (command_.empty() ? "" : " ") + each;
      words.push_back(each.data());
    }
    words.push_back(nullptr);
    pid_t child = 0;
    if (const int fault = ::posix_spawnp(&child, words[0], nullptr, nullptr, words.data(), environ); fault != 0) {
      throw std::system_error(fault, std::generic_category(), "starting " + command_);
    }
    processes_.push_back(child);
  }

  std::string folder_;
  std::string command_;
  std::vector<descriptor> pipes_;
  std::vector<pid_t> processes_;
};

/// Rank 0's end.
class peer_caller {
 public:
  struct answer {
    double time_us = 0;
    std::size_t wrong = 0;
    std::string chosen;
  };

  peer_caller(std::string name, int ranks) : name_(std::move(name)) {
    const std::string folder = std::string(std::getenv(peers_folder_variable)) + "/" + name_;
    for (int rank = 0; rank < ranks; ++rank) {
      commands_.push_back(open_pipe(command_pipe(folder, rank), O_WRONLY));
    }
    answers_ = open_pipe(answer_pipe(folder), O_RDONLY);
  }

  const std::string& name() const { return name_; }

  /// So many sums of so many bytes. Sleeps until they are done.
  answer measure(std::size_t bytes, std::size_t iterations) {
    const std::string command = std::to_string(bytes) + " " + std::to_string(iterations) + "\n";
    for (const descriptor& each : commands_) {
      (void)!::write(each.number(), command.data(), command.size());
    }
    std::istringstream line(read_line());
    answer got;
    line >> got.time_us >> got.wrong >> got.chosen;
    return got;
  }

 private:
  std::string read_line() {
    constexpr int patience_ms = 120'000;
    std::string line;
    for (char next = 0; next != '\n'; line += next) {
      pollfd awaited{answers_.number(), POLLIN, 0};
      if (::poll(&awaited, 1, patience_ms) != 1 || ::read(answers_.number(), &next, 1) != 1) {
        throw std::runtime_error("--peer " + name_ + " gives no answer; what it printed above may say why");
      }
    }
    return line;
  }

  std::string name_;
  std::vector<descriptor> commands_;
  descriptor answers_;
};

}  // namespace gradweave::bench
