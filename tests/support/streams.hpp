/// @file
/// Two ends of a TCP connection on the loopback interface, and what to do with a stream over them.
#pragma once

#include <array>
#include <cstddef>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/transport/stream.hpp>

namespace gradweave::tests {

/// Connected, and not blocking.
inline std::pair<boost::asio::ip::tcp::socket, boost::asio::ip::tcp::socket> socket_pair(
    boost::asio::io_context& context) {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(context, {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket near(context);
  near.connect(acceptor.local_endpoint());
  tcp::socket far = acceptor.accept();
  near.non_blocking(true);
  far.non_blocking(true);
  return {std::move(near), std::move(far)};
}

/// Everything until the other side says that nothing more comes.
template <byte_stream Stream>
std::vector<std::byte> read_all(Stream& stream) {
  std::vector<std::byte> all;
  std::array<std::byte, 4096> room;
  for (;;) {
    const io_result done = stream.read(room);
    all.insert(all.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(done.bytes));
    if (done.closed) {
      return all;
    }
    if (done.bytes == 0) {
      std::this_thread::yield();
    }
  }
}

}  // namespace gradweave::tests
