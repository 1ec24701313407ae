/// @file
/// Which of many connections are worth reading, without asking each. What has come is told once (epoll, edge-triggered)
/// and remembered until it has been read.
#pragma once

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include <gradweave/transport/control_channel.hpp>

namespace gradweave::detail {

/// A descriptor, or the error why there is none.
inline int checked(int descriptor, const char* what) {
  if (descriptor < 0) {
    throw std::system_error(errno, std::generic_category(), std::string("gradweave: ") + what);
  }
  return descriptor;
}

/// Threads: `look` and `begin_round` belong to who drives the transport. What concerns one connection belongs to whoever
/// may read from it.
class readiness {
 public:
  explicit readiness(std::size_t connections)
      : epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")), states_(connections) {}
  readiness(const readiness&) = delete;
  readiness& operator=(const readiness&) = delete;
  ~readiness() { ::close(epoll_); }

  void watch(int descriptor, std::size_t connection) {
    add(descriptor, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, connection);
  }
  /// Only ends `look`.
  void watch_bell(int descriptor) { add(descriptor, EPOLLIN | EPOLLET, no_connection); }

  /// Sleeps until something happens on any connection. False where nothing does. What happened since it was last told
  /// ends the sleep at once; what nobody has read yet does not end it again and again.
  bool look(int milliseconds) {
    told_ = ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), milliseconds);
    return told_ != 0;
  }

  /// Remembers what `look` was told, and calls `changed(connection)` for each.
  template <class Changed>
  void take_in(Changed&& changed) {
    for (int i = 0; i < told_; ++i) {
      const epoll_event& event = events_[static_cast<std::size_t>(i)];
      if (event.data.u64 == no_connection) {
        continue;
      }
      state& known = states_[event.data.u64];
      known.ended = known.ended || (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
      known.unread = known.unread || known.ended || (event.events & EPOLLIN) != 0;
      changed(static_cast<std::size_t>(event.data.u64));
    }
    told_ = 0;
    rounds_since_ = 0;
  }

  /// Begins a round of reads. What is known holds for two rounds after `look`, the last of one collective and the first of
  /// the next: who tries again without looking has to be given what came meanwhile.
  void begin_round() { is_known_ = ++rounds_since_ <= 2; }

  bool is_worth_reading(std::size_t connection) const { return !is_known_ || states_[connection].unread; }

  /// Takes note of a read, after which nothing was left. What ends a connection may have come before that, told already.
  void drained(std::size_t connection) { states_[connection].unread = states_[connection].ended; }
  /// More was left.
  void left_unread(std::size_t connection) { states_[connection].unread = true; }

 private:
  struct state {
    bool unread = true;
    bool ended = false;
  };

  static constexpr std::uint64_t no_connection = UINT64_MAX;

  void add(int descriptor, std::uint32_t events, std::uint64_t whose) {
    epoll_event wanted{};
    wanted.events = events;
    wanted.data.u64 = whose;
    checked(::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &wanted), "epoll_ctl");
  }

  int epoll_;
  std::array<epoll_event, 64> events_;
  int told_ = 0;
  std::vector<state> states_;
  std::uint64_t rounds_since_ = 2;
  bool is_known_ = false;
};

}  // namespace gradweave::detail
