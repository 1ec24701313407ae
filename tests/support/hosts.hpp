/// @file
/// Hosts with networks of their own, on this machine: network namespaces, and cables between them. Linux; needs the
/// command `ip` of iproute2, and a kernel that lets this process make namespaces.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/processes.hpp"

namespace gradweave::tests {

/// A network and a mount namespace, which a process holds that does nothing else: with it they go. Who may not make them
/// gets a user namespace first, in which he may.
class host {
 public:
  /// The first host of a test, or one beside `first`. Where the kernel forbids it, it is not `usable`.
  explicit host(const host* first = nullptr) {
    for (const bool unprivileged : {false, true}) {
      if (first != nullptr && first->unprivileged_ != unprivileged) {
        continue;
      }
      const auto user = first == nullptr ? std::string() : first->space("user");
      holder_.clear();
      holder_.push_back(std::make_unique<process>(process_command{
          .arguments = {"sh", "-c", "echo ready; exec sleep 1000"}, .prepare = [unprivileged, user] {
            return (!unprivileged || (user.empty() ? make_user_namespace() : enter(user, CLONE_NEWUSER))) &&
                   ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0 &&
                   ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
          }}));
      unprivileged_ = unprivileged;
      watch_until(
          holder_, [&] { return holder_[0]->has_printed("ready") || holder_[0]->ended(); }, std::chrono::seconds(20));
      if (usable()) {
        break;
      }
    }
  }

  bool usable() const { return !holder_[0]->ended() && holder_[0]->has_printed("ready"); }

  /// Of the process that holds it.
  pid_t id() const { return holder_[0]->id(); }

  /// For process_command::prepare: the process is on this host then.
  std::function<bool()> entry() const {
    return [user = unprivileged_ ? space("user") : std::string(), network = space("net"), mounts = space("mnt")] {
      return (user.empty() || enter(user, CLONE_NEWUSER)) && enter(network, CLONE_NEWNET) && enter(mounts, CLONE_NEWNS);
    };
  }

  /// Runs a command on this host; it has to succeed.
  void run(const std::vector<std::string>& command, const std::function<bool()>& before = [] { return true; }) const {
    process_list one;
    one.push_back(std::make_unique<process>(
        process_command{.arguments = command, .prepare = [enter = entry(), before] { return enter() && before(); }}));
    if (!watch_to_the_end(one, std::chrono::seconds(20)) || one[0]->status() != 0) {
      std::string text;
      for (const std::string& each : command) {
        text += each + " ";
      }
      throw std::runtime_error(text + "failed: " + one[0]->printed());
    }
  }

  /// Its /etc/hosts is this file; nobody else's is.
  void use_names(const std::string& file) const {
    run({"true"}, [file] { return ::mount(file.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0; });
  }

 private:
  std::string space(const char* kind) const { return "/proc/" + std::to_string(id()) + "/ns/" + kind; }

  static bool enter(const std::string& name, int kind) {
    const int space = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    const bool entered = space >= 0 && ::setns(space, kind) == 0;
    ::close(space);
    return entered;
  }

  static bool make_user_namespace() {
    const std::string user = "0 " + std::to_string(::geteuid()) + " 1";
    const std::string group = "0 " + std::to_string(::getegid()) + " 1";
    const auto write = [](const char* file, const std::string& text) {
      std::ofstream out(file);
      out << text << std::flush;
      return out.good();
    };
    return ::unshare(CLONE_NEWUSER) == 0 && write("/proc/self/setgroups", "deny") &&
           write("/proc/self/uid_map", user) && write("/proc/self/gid_map", group);
  }

  process_list holder_;  // one
  bool unprivileged_ = false;
};

inline std::string ip_command() {
  for (const char* place : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (std::filesystem::exists(place)) {
      return place;
    }
  }
  return "";
}

/// Two hosts with cables between them. Each end of cable i is the interface `wire<i>` with the addresses 10.77.<i>.1 or .2,
/// and fd77:<i>::1 or ::2.
class host_pair {
 public:
  /// Why there are no two hosts; empty where there are.
  std::string obstacle() const {
    if (ip_command().empty()) {
      return "there is no command `ip` (package iproute2)";
    }
    return second_.usable() ? "" : "the kernel does not let this process make network namespaces";
  }

  const host& operator[](std::size_t which) const { return which == 0 ? first_ : second_; }

  void connect(int cable, bool v4 = true, bool v6 = true) const {
    const std::string name = "wire" + std::to_string(cable);
    const std::string ip = ip_command();
    (*this)[0].run(
        {ip, "link", "add", name, "type", "veth", "peer", "name", name, "netns", std::to_string((*this)[1].id())});
    for (std::size_t end = 0; end < 2; ++end) {
      const host& own = (*this)[end];
      const std::string last = std::to_string(end + 1);
      if (v4) {
        own.run({ip, "addr", "add", "10.77." + std::to_string(cable) + "." + last + "/24", "dev", name});
      }
      if (v6) {
        own.run({ip, "-6", "addr", "add", "fd77:" + std::to_string(cable) + "::" + last + "/64", "dev", name, "nodad"});
      }
      own.run({ip, "link", "set", "lo", "up"});
      own.run({ip, "link", "set", name, "up"});
    }
  }

  /// Pulls a cable out of host `end`.
  void cut(int cable, std::size_t end) const {
    (*this)[end].run({ip_command(), "link", "set", "wire" + std::to_string(cable), "down"});
  }

 private:
  host first_;
  host second_{&first_};
};

}  // namespace gradweave::tests
