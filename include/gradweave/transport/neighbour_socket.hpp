/// @file
/// Unix sockets between processes of one host, over which they hand descriptors to each other. They have no file: their
/// names are in the abstract namespace (unix(7)) and go when the socket does.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/descriptor.hpp>

namespace gradweave {

/// The name of a listening socket: of fixed size, so that it can be sent as it is.
struct neighbour_name {
  std::array<char, 16> bytes{};
  std::uint32_t length = 0;  ///< 0: it listens nowhere
};

/// One end of a connection. Messages are a value each, with up to two descriptors.
class neighbour_socket {
 public:
  static constexpr std::size_t descriptors_max = 2;

  neighbour_socket() = default;
  explicit neighbour_socket(descriptor connected) : socket_(std::move(connected)) {}

  /// Nothing where nobody listens on this host by that name, or the host's other user does.
  static std::optional<neighbour_socket> connect(const neighbour_name& name) {
    descriptor end(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    const socklen_t length = address_of(name, address);
    if (!end || name.length == 0 || ::connect(end.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      return std::nullopt;
    }
    return is_own_user(end) ? std::optional(neighbour_socket(std::move(end))) : std::nullopt;
  }

  /// False where the peer is gone, or does not make room for it by `until`.
  template <class Message>
  bool send(const Message& message, std::initializer_list<int> descriptors,
            std::chrono::steady_clock::time_point until) const {
    static_assert(std::is_trivially_copyable_v<Message>);
    iovec bytes{const_cast<Message*>(&message), sizeof(Message)};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptors_max * sizeof(int))> room{};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    if (descriptors.size() != 0) {
      header.msg_control = room.data();
      header.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
      cmsghdr* const attached = CMSG_FIRSTHDR(&header);
      attached->cmsg_level = SOL_SOCKET;
      attached->cmsg_type = SCM_RIGHTS;
      attached->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
      std::memcpy(CMSG_DATA(attached), descriptors.begin(), descriptors.size() * sizeof(int));
    }
    while (::sendmsg(socket_.number(), &header, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(Message))) {
      if (errno != EAGAIN || !is_ready(socket_, POLLOUT, until)) {
        return false;
      }
    }
    return true;
  }

  /// Nothing where no whole message came by `until`. Whatever descriptors came with it are the caller's.
  template <class Message>
  std::optional<Message> receive(std::vector<descriptor>& descriptors,
                                 std::chrono::steady_clock::time_point until) const {
    static_assert(std::is_trivially_copyable_v<Message>);
    Message message{};
    iovec bytes{&message, sizeof(Message)};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptors_max * sizeof(int))> room{};
    msghdr header{};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    header.msg_control = room.data();
    header.msg_controllen = room.size();
    if (!is_ready(socket_, POLLIN, until)) {
      return std::nullopt;
    }
    ssize_t got = ::recvmsg(socket_.number(), &header, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == ECONNRESET) {
      // The peer went without having read everything. That is told once, before what it sent is given out.
      got = ::recvmsg(socket_.number(), &header, MSG_CMSG_CLOEXEC);
    }
    descriptors.clear();
    for (cmsghdr* each = got < 0 ? nullptr : CMSG_FIRSTHDR(&header); each != nullptr;
         each = CMSG_NXTHDR(&header, each)) {
      if (each->cmsg_level == SOL_SOCKET && each->cmsg_type == SCM_RIGHTS) {
        for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= each->cmsg_len; at += sizeof(int)) {
          int number = -1;
          std::memcpy(&number, CMSG_DATA(each) + at, sizeof(int));
          descriptors.emplace_back(number);
        }
      }
    }
    return got == static_cast<ssize_t>(sizeof(Message)) ? std::optional(message) : std::nullopt;
  }

  static bool is_own_user(const descriptor& connected) {
    ucred peer{};
    socklen_t length = sizeof peer;
    return ::getsockopt(connected.number(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
  }

  static bool is_ready(const descriptor& socket, short wanted, std::chrono::steady_clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    pollfd awaited{socket.number(), wanted, 0};
    return ::poll(&awaited, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) == 1;
  }

  static socklen_t address_of(const neighbour_name& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    const std::size_t length = std::min<std::size_t>(name.length, name.bytes.size());
    std::memcpy(address.sun_path, name.bytes.data(), length);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  }

 private:
  descriptor socket_;
};

/// Where other processes of this host and user can connect.
class neighbour_listener {
 public:
  /// Throws std::system_error.
  explicit neighbour_listener(int backlog)
      : socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t length = sizeof address.sun_family;  // no name: the kernel chooses one
    if (!socket_ || ::bind(socket_.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(socket_.number(), backlog) != 0 ||
        ::getsockname(socket_.number(), reinterpret_cast<sockaddr*>(&address), &(length = sizeof address)) != 0) {
      throw std::system_error(errno, std::generic_category(), "gradweave: listening for processes of this host");
    }
    name_.length = static_cast<std::uint32_t>(length - offsetof(sockaddr_un, sun_path));
    std::memcpy(name_.bytes.data(), address.sun_path, std::min<std::size_t>(name_.length, name_.bytes.size()));
  }

  const neighbour_name& name() const { return name_; }

  /// Nothing where nobody of this user connected by `until`.
  std::optional<neighbour_socket> accept(std::chrono::steady_clock::time_point until) const {
    while (neighbour_socket::is_ready(socket_, POLLIN, until)) {
      descriptor end(::accept4(socket_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (end && neighbour_socket::is_own_user(end)) {
        return neighbour_socket(std::move(end));
      }
    }
    return std::nullopt;
  }

 private:
  descriptor socket_;
  neighbour_name name_;
};

}  // namespace gradweave
