/// @file
/// `launch`: starts the ranks of a job on this machine, as torchrun does, for programs that bring their own launcher.
/// Linux.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/descriptor.hpp>

namespace gradweave {

struct launch_options {
  int ranks = 2;
  std::uint16_t port = 0;                    ///< at which rank 0 will listen; 0: one that is free
  std::string program = "/proc/self/exe";    ///< what each rank runs: by default the program that launches
  bool name_ranks = true;                    ///< put "[rank 1] " before each line that a rank prints; without it ranks
                                             ///< print straight to this program's outputs
  std::chrono::milliseconds patience{5000};  ///< how long the others may go on once a rank has failed

  friend bool operator==(const launch_options&, const launch_options&) = default;
};

/// Whether a launcher (this one, torchrun, mpirun, Slurm) started this process as a rank.
inline bool is_launched() {
  return std::getenv("RANK") != nullptr || std::getenv("OMPI_COMM_WORLD_RANK") != nullptr ||
         std::getenv("SLURM_PROCID") != nullptr || std::getenv("PMI_RANK") != nullptr;
}

namespace detail {

[[noreturn]] inline void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), std::string("gradweave: launch: ") + what);
}

/// The file behind a link such as /proc/self/exe: what is run through the link itself is listed under the link's name.
inline std::string behind_link(const std::string& path) {
  std::error_code gone;
  const std::filesystem::path file = std::filesystem::canonical(path, gone);
  return gone ? path : file.string();
}

/// A port of this host that nobody else gets while this lives, and at which a rank can listen nevertheless: it is bound
/// to be reused, and nobody listens here.
class reserved_port {
 public:
  explicit reserved_port(std::uint16_t wanted) : number_(wanted) {
    if (wanted != 0) {
      return;
    }
    // Of both families where the host has both, as rank 0 will listen.
    sockaddr_storage any{};
    any.ss_family = AF_INET6;
    holder_ = descriptor(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int no = 0, yes = 1;
    if (holder_.number() < 0 || ::setsockopt(holder_.number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0) {
      any.ss_family = AF_INET;
      holder_ = descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    }
    socklen_t length = any.ss_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    auto* const address = reinterpret_cast<sockaddr*>(&any);
    // Reuse is allowed only afterwards: who allows it before is given ports that others hold in the same way.
    if (holder_.number() < 0 || ::bind(holder_.number(), address, length) != 0 ||
        ::getsockname(holder_.number(), address, &length) != 0 ||
        ::setsockopt(holder_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0) {
      throw_errno("no free port");
    }
    // The port lies at the same place in both.
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    std::uint16_t port = 0;
    std::memcpy(&port, reinterpret_cast<const char*>(&any) + offsetof(sockaddr_in, sin_port), sizeof port);
    number_ = ntohs(port);
  }

  std::uint16_t number() const { return number_; }

 private:
  std::uint16_t number_;
  descriptor holder_;
};

/// What a rank prints on one of its two outputs, passed on line by line.
struct launched_output {
  descriptor from;
  int to = STDOUT_FILENO;
  std::string prefix;
  std::string line;  // what has come of an unfinished one

  static void write_all(int to, std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(to, text.data(), text.size());
      if (written < 0 && errno != EINTR) {
        return;  // nobody reads any more
      }
      text.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
    }
  }

  /// Reads once; closes at the end of the output, and finishes its last line.
  void pass_on() {
    std::array<char, 16384> room;
    const ssize_t count = ::read(from.number(), room.data(), room.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) {
      return;
    }
    for (ssize_t i = 0; i < count; ++i) {
      line.push_back(room[static_cast<std::size_t>(i)]);
      if (line.back() == '\n') {
        write_all(to, prefix + std::exchange(line, {}));
      }
    }
    if (count <= 0) {
      if (!line.empty()) {
        write_all(to, prefix + std::exchange(line, {}) + "\n");
      }
      from.close();
    }
  }
};

/// Blocks signals for this thread as long as it lives, and gives them as a descriptor instead.
class signal_inbox {
 public:
  signal_inbox() {
    sigemptyset(&wanted_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) {
      sigaddset(&wanted_, number);
    }
    if (pthread_sigmask(SIG_BLOCK, &wanted_, &before_) != 0) {
      throw_errno("pthread_sigmask");
    }
    inbox_ = descriptor(::signalfd(-1, &wanted_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (inbox_.number() < 0) {
      throw_errno("signalfd");
    }
  }
  signal_inbox(const signal_inbox&) = delete;
  ~signal_inbox() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  int number() const { return inbox_.number(); }
  const sigset_t& mask_before() const { return before_; }

  struct arrived {
    int number = 0;  ///< 0: none
    pid_t from = 0;  ///< of SIGCHLD, the process that ended; of several at once the first
  };

  /// The next signal that has come.
  arrived take() {
    signalfd_siginfo info{};
    return ::read(inbox_.number(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)
               ? arrived{static_cast<int>(info.ssi_signo), static_cast<pid_t>(info.ssi_pid)}
               : arrived{};
  }

 private:
  sigset_t wanted_{};
  sigset_t before_{};
  descriptor inbox_;
};

/// 256 random bits, in hexadecimal.
inline std::string random_secret() {
  constexpr std::string_view digits = "0123456789abcdef";
  std::random_device random;
  std::string secret;
  while (secret.size() < 64) {
    secret += digits[random() % digits.size()];
  }
  return secret;
}

class launcher {
 public:
  launcher(launch_options options, std::span<char* const> arguments)
      : options_(std::move(options)), port_(options_.port) {
    for (int rank = 0; rank < options_.ranks; ++rank) {
      start(rank, arguments);
    }
  }
  launcher(const launcher&) = delete;
  ~launcher() {
    signal_all(SIGKILL);
    reap_all(0);
  }

  int run() {
    while (!processes_.empty() || !outputs_.empty()) {
      std::vector<pollfd> polled{{signals_.number(), POLLIN, 0}};
      for (const launched_output& each : outputs_) {
        polled.push_back({each.from.number(), POLLIN, 0});
      }
      if (::poll(polled.data(), polled.size(), 100) > 0) {
        for (std::size_t i = 0; i < outputs_.size(); ++i) {
          if (polled[i + 1].revents != 0) {
            outputs_[i].pass_on();
          }
        }
        std::erase_if(outputs_, [](const launched_output& each) { return each.from.number() < 0; });
      }
      for (auto signal = signals_.take(); signal.number != 0; signal = signals_.take()) {
        if (signal.number != SIGCHLD) {
          signal_all(signal.number);
          fail(128 + signal.number);
        } else if (std::find(processes_.begin(), processes_.end(), signal.from) != processes_.end()) {
          reap(signal.from, WNOHANG);  // before those that ended since, perhaps as a consequence
        }
      }
      reap_all(WNOHANG);
      if (status_ != 0 && std::chrono::steady_clock::now() > give_up_) {
        signal_all(SIGKILL);
      }
      if (processes_.empty() && std::chrono::steady_clock::now() > give_up_) {
        break;  // a process that a rank left behind holds its output open
      }
    }
    return status_;
  }

 private:
  void start(int rank, std::span<char* const> arguments) {
    std::vector<std::string> variables{"RANK=" + std::to_string(rank),
                                       "LOCAL_RANK=" + std::to_string(rank),
                                       "WORLD_SIZE=" + std::to_string(options_.ranks),
                                       "LOCAL_WORLD_SIZE=" + std::to_string(options_.ranks),
                                       "MASTER_ADDR=127.0.0.1",
                                       "MASTER_PORT=" + std::to_string(port_.number())};
    if (std::getenv("GRADWEAVE_JOB") == nullptr) {
      variables.push_back("GRADWEAVE_JOB=launched by process " + std::to_string(::getpid()));
    }
    if (std::getenv("GRADWEAVE_SECRET") == nullptr && std::getenv("GRADWEAVE_SECRET_FILE") == nullptr) {
      variables.push_back("GRADWEAVE_SECRET=" + secret_);
    }
    std::vector<char*> argument_list(arguments.begin(), arguments.end());
    argument_list.push_back(nullptr);
    std::array<std::array<descriptor, 2>, 2> pipes;  // stays empty where ranks print for themselves
    for (auto& ends : pipes) {
      std::array<int, 2> numbers{};
      if (options_.name_ranks && ::pipe2(numbers.data(), O_CLOEXEC) != 0) {
        throw_errno("pipe2");
      }
      if (options_.name_ranks) {
        ends = {descriptor(numbers[0]), descriptor(numbers[1])};
      }
    }
    const std::string program = behind_link(options_.program);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) {
      throw_errno("fork");
    }
    if (child == 0) {
      // A rank does not outlive its launcher, however that ends.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::setpgid(0, 0);  // what it starts itself gets its signals too
      pthread_sigmask(SIG_SETMASK, &signals_.mask_before(), nullptr);
      for (const std::string& variable : variables) {
        ::putenv(const_cast<char*>(variable.c_str()));
      }
      const bool has_outputs = !options_.name_ranks || (::dup2(pipes[0][1].number(), STDOUT_FILENO) >= 0 &&
                                                        ::dup2(pipes[1][1].number(), STDERR_FILENO) >= 0);
      if (has_outputs && ::getppid() == parent) {
        ::execv(program.c_str(), argument_list.data());
      }
      ::_exit(127);
    }
    processes_.push_back(child);
    if (options_.name_ranks) {
      const std::string prefix = "[rank " + std::to_string(rank) + "] ";
      outputs_.push_back({std::move(pipes[0][0]), STDOUT_FILENO, prefix, {}});
      outputs_.push_back({std::move(pipes[1][0]), STDERR_FILENO, prefix, {}});
    }
  }

  void signal_all(int number) {
    for (const pid_t process : processes_) {
      if (::kill(-process, number) != 0) {
        ::kill(process, number);  // it has not made its group yet
      }
    }
  }

  void fail(int status) {
    if (status_ == 0) {
      status_ = status;
      give_up_ = std::chrono::steady_clock::now() + options_.patience;
    }
  }

  /// Takes note of a rank, if it has ended.
  void reap(pid_t process, int flags) {
    int outcome = 0;
    if (::waitpid(process, &outcome, flags) != process) {
      return;
    }
    const int status = WIFSIGNALED(outcome) ? 128 + WTERMSIG(outcome) : WEXITSTATUS(outcome);
    if (status != 0) {
      fail(status);
    }
    std::erase(processes_, process);
    if (processes_.empty() && status_ == 0) {
      give_up_ = std::chrono::steady_clock::now() + options_.patience;
    }
  }

  /// Only the ranks are asked for: other children are not this launcher's.
  void reap_all(int flags) {
    for (const pid_t process : std::vector(processes_)) {
      reap(process, flags);
    }
  }

  launch_options options_;
  reserved_port port_;
  std::string secret_ = random_secret();
  signal_inbox signals_;
  std::vector<pid_t> processes_;
  std::vector<launched_output> outputs_;
  int status_ = 0;
  std::chrono::steady_clock::time_point give_up_{};
};

}  // namespace detail

/// Runs `options.ranks` processes with these arguments and the variables that torchrun sets; with GRADWEAVE_JOB and
/// GRADWEAVE_SECRET of their own where these are not set, so that no other job or stranger gets in. Passes on their output and
/// the signals SIGINT, SIGTERM and SIGHUP, and waits for all. Returns 0, or the status of the rank that failed first, as
/// a shell counts: 128 and the signal's number for one that was killed. No rank outlives it, also where this process is
/// killed. Call it from the main thread, before others are started: it forks. Throws std::system_error where a process
/// can't be started.
inline int launch(std::span<char* const> arguments, launch_options options = {}) {
  require(options.ranks > 0, "launch: a job has at least one rank");
  require(!arguments.empty(), "launch: the arguments begin with the program's name");
  return detail::launcher(std::move(options), arguments).run();
}

}  // namespace gradweave
