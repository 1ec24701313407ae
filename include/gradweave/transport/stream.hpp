/// @file
/// A connection to one peer as the transport uses it, and the plain one, TCP. transport/tls.hpp has one that is encrypted.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_channel.hpp>

namespace gradweave {

/// Who of two ranks called the other.
enum class stream_side { caller, host };

/// Made from a connected socket that does not block, once both sides have introduced themselves: `S(socket, side, secret,
/// until)` may exchange messages with the peer until the deadline, and throws std::runtime_error where that fails.
/// `write` and `read` never block; `at_end()` is true once everything that the peer sent has been read and nothing more
/// comes. `native_handle()` is what to wait for. `protection` says in words what the stream does against strangers once a
/// secret is given; `needs_secret` whether it does not work without.
template <class S>
concept byte_stream =
    control_stream<S> && std::movable<S> &&
    std::constructible_from<S, boost::asio::ip::tcp::socket, stream_side, const std::string&, deadline> &&
    requires(S& stream) {
      { stream.native_handle() } -> std::same_as<int>;
      { stream.at_end() } -> std::same_as<bool>;
      stream.shut_down();
      { S::protection } -> std::convertible_to<const char*>;
      { S::needs_secret } -> std::convertible_to<bool>;
    };

class tcp_stream {
 public:
  static constexpr const char* protection = "secret";
  static constexpr bool needs_secret = false;

  tcp_stream(boost::asio::ip::tcp::socket socket, stream_side, const std::string&, deadline)
      : socket_(std::move(socket)) {}

  int native_handle() { return socket_.native_handle(); }

  io_result write(std::span<const std::byte> bytes) {
    boost::system::error_code fault;
    const std::size_t taken = socket_.write_some(boost::asio::buffer(bytes.data(), bytes.size()), fault);
    return {taken, fault && fault != boost::asio::error::would_block};
  }

  io_result read(std::span<std::byte> room) {
    boost::system::error_code fault;
    const std::size_t arrived = socket_.read_some(boost::asio::buffer(room.data(), room.size()), fault);
    return {arrived, fault && fault != boost::asio::error::would_block, arrived < room.size()};
  }

  /// The same from and to memory in several pieces, at most pieces_max.
  io_result write_pieces(std::span<const std::span<const std::byte>> pieces) {
    std::array<boost::asio::const_buffer, pieces_max> buffers;
    std::transform(pieces.begin(), pieces.end(), buffers.begin(),
                   [](std::span<const std::byte> each) { return boost::asio::buffer(each.data(), each.size()); });
    boost::system::error_code fault;
    const std::size_t taken = socket_.write_some(buffers, fault);
    return {taken, fault && fault != boost::asio::error::would_block};
  }

  io_result read_pieces(std::span<const std::span<std::byte>> pieces) {
    std::array<boost::asio::mutable_buffer, pieces_max> buffers;
    std::transform(pieces.begin(), pieces.end(), buffers.begin(),
                   [](std::span<std::byte> each) { return boost::asio::buffer(each.data(), each.size()); });
    boost::system::error_code fault;
    const std::size_t arrived = socket_.read_some(buffers, fault);
    return {arrived, fault && fault != boost::asio::error::would_block, arrived < boost::asio::buffer_size(buffers)};
  }

  bool at_end() {
    std::byte next;
    boost::system::error_code fault;
    socket_.receive(boost::asio::buffer(&next, 1), boost::asio::socket_base::message_peek, fault);
    return fault && fault != boost::asio::error::would_block;
  }

  /// Says that nothing more comes. What was sent still arrives.
  void shut_down() {
    boost::system::error_code ignored;
    socket_.shutdown(boost::asio::socket_base::shutdown_send, ignored);
  }

 private:
  boost::asio::ip::tcp::socket socket_;
};

static_assert(byte_stream<tcp_stream>);

}  // namespace gradweave
