/// @file
/// The caller's side of a connection of the rendezvous: connects, proves that it knows the secret and has it proved to
/// it, and exchanges whole messages, each before a deadline.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/udp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <gradweave/transport/authentication.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/envelope.hpp>

namespace gradweave::detail {

using tcp_endpoint = boost::asio::ip::tcp::endpoint;
using tcp_socket = boost::asio::ip::tcp::socket;

/// An IPv4 address that a socket for both families shows as IPv6, as what it is.
inline boost::asio::ip::address plain(const boost::asio::ip::address& address) {
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
             : address;
}

inline std::string to_text(const tcp_endpoint& endpoint) {
  return plain(endpoint.address()).to_string() + " port " + std::to_string(endpoint.port());
}

/// Both ends of a connection, as errors name it.
inline std::string route_of(const tcp_socket& socket) {
  boost::system::error_code fault;
  const auto own = socket.local_endpoint(fault);
  const auto other = fault ? tcp_endpoint() : socket.remote_endpoint(fault);
  return fault ? "a connection that is closed" : to_text(own) + " to " + to_text(other);
}

/// The address that this host would call `to` from; nothing where it has no way there.
inline std::optional<boost::asio::ip::address> source_address(boost::asio::io_context& context,
                                                              const tcp_endpoint& to) {
  boost::system::error_code fault;
  boost::asio::ip::udp::socket probe(context);  // connecting it sends nothing
  probe.connect({to.address(), to.port()}, fault);
  const auto own = fault ? boost::asio::ip::udp::endpoint() : probe.local_endpoint(fault);
  return fault ? std::nullopt : std::optional(own.address());
}

/// How long something is waited for: until a time comes, or a handler of the same context has found out that it is in
/// vain.
struct wait_limit {
  deadline until;
  const bool* in_vain = nullptr;

  wait_limit(deadline time) : until(time) {}  // a deadline is one: most waits end by time alone
  wait_limit(deadline time, const bool& found_in_vain) : until(time), in_vain(&found_in_vain) {}

  bool over() const { return in_vain != nullptr && *in_vain; }
};

/// Runs the context until `done` or the limit. False where the limit came first.
template <class Done>
bool run_until(boost::asio::io_context& context, wait_limit limit, Done&& done) {
  context.restart();
  while (!done()) {
    if (limit.over() || (context.run_one_until(limit.until) == 0 && std::chrono::steady_clock::now() >= limit.until)) {
      return false;
    }
    context.restart();
  }
  return true;
}

/// Runs one operation, which `begin(handler)` starts, to its end or the limit, where it closes the socket. The fault,
/// in words.
template <class Begin>
std::optional<std::string> finish_until(boost::asio::io_context& context, tcp_socket& socket, wait_limit limit,
                                        Begin&& begin) {
  bool done = false;
  boost::system::error_code fault;
  begin([&](boost::system::error_code outcome, std::size_t = 0) {
    fault = outcome;
    done = true;
  });
  if (!run_until(context, limit, [&] { return done; })) {
    socket.close();
    run_until(context, deadline::max(), [&] { return done; });
    return "no answer in time";
  }
  return fault ? std::optional(fault.message()) : std::nullopt;
}

/// Calls `to`, from `source` where that is given. Where it fails, `fault` says from where to where, and why.
inline std::optional<tcp_socket> connect_until(boost::asio::io_context& context, const tcp_endpoint& to,
                                               const std::optional<boost::asio::ip::address>& source, wait_limit limit,
                                               std::string& fault) {
  tcp_socket socket(context);
  boost::system::error_code unfit;
  socket.open(to.protocol(), unfit);
  if (source && !unfit) {
    socket.bind({*source, 0}, unfit);
  }
  const auto failed =
      unfit ? std::optional(unfit.message())
            : finish_until(context, socket, limit, [&](auto handler) { socket.async_connect(to, std::move(handler)); });
  if (!failed) {
    return socket;
  }
  const auto from = source ? source : source_address(context, to);
  fault = (from ? from->to_string() : "this host, which has no way there,") + " to " + to_text(to) + ": " + *failed;
  return std::nullopt;
}

/// Who is gone by now is missed when it is listened to.
inline void send_message(tcp_socket& to, message_kind kind, std::span<const std::byte> body) {
  boost::system::error_code ignored;
  boost::asio::write(to, boost::asio::buffer(in_envelope(kind, body)), ignored);
}

/// The body of the next message, or why there is none.
struct received_message {
  message_kind kind{};
  std::vector<std::byte> body;
  std::optional<std::string> fault;
};

inline received_message receive_message(boost::asio::io_context& context, tcp_socket& from,
                                        std::initializer_list<message_kind> kinds, std::size_t bytes_max,
                                        wait_limit limit) {
  const auto read = [&](auto& room) {
    return finish_until(context, from, limit, [&](auto handler) {
      boost::asio::async_read(from, boost::asio::buffer(room), std::move(handler));
    });
  };
  std::array<std::byte, envelope_bytes> head{};
  received_message message;
  message.fault = read(head);
  if (message.fault) {
    return message;
  }
  const auto opened = open_envelope(head, bytes_max);
  if (!opened || std::find(kinds.begin(), kinds.end(), opened->kind) == kinds.end()) {
    message.fault = "who answers there is not gradweave, or another version of it";
    return message;
  }
  message.kind = opened->kind;
  message.body.resize(opened->body_bytes);
  message.fault = read(message.body);
  return message;
}

inline constexpr std::string_view secrets_differ =
    "this rank and who answers there do not know the same secret, or only one of both knows one (GRADWEAVE_SECRET)";

/// Proves to the host that this side knows the secret, which may be empty, and has it proved. Why it failed.
inline std::optional<std::string> prove_secret(boost::asio::io_context& context, tcp_socket& socket,
                                               const std::string& secret, wait_limit limit) {
  const nonce own = fresh_nonce();
  send_message(socket, message_kind::caller_nonce, own);
  const auto challenge = receive_message(context, socket, {message_kind::host_nonce}, own.size(), limit);
  nonce other{};
  if (challenge.fault || challenge.body.size() != other.size()) {
    return challenge.fault.value_or("who answers there is not gradweave, or another version of it");
  }
  std::copy(challenge.body.begin(), challenge.body.end(), other.begin());
  send_message(socket, message_kind::caller_proof, prove(secret, prover::caller, own, other));
  const auto answer = receive_message(context, socket, {message_kind::host_proof}, sizeof(secret_proof), limit);
  if (answer.fault || !is_proof(answer.body, prove(secret, prover::host, own, other))) {
    return std::string(secrets_differ);
  }
  return std::nullopt;
}

}  // namespace gradweave::detail
