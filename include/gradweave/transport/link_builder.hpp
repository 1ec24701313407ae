/// @file
/// Makes the connections between ranks that know each other's addresses: of a job that has met, and of a group.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <netinet/tcp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/error.hpp>
#include <gradweave/transport/asio_link.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/interfaces.hpp>
#include <gradweave/transport/introduction.hpp>
#include <gradweave/transport/reception.hpp>
#include <gradweave/transport/stream.hpp>

namespace gradweave::detail {

inline void prepare_socket(tcp_socket& socket) {
  socket.set_option(boost::asio::ip::tcp::no_delay(true));
  socket.set_option(boost::asio::socket_base::keep_alive(true));
  socket.non_blocking(true);
  const int milliseconds = 60'000;  // how long sent bytes may stay unacknowledged: a host that is gone, a cut cable
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

/// A rank that is to be connected to.
struct link_peer {
  int name = 0;                            ///< the number that errors call it by
  stream_side side = stream_side::caller;  ///< who calls: `caller` where this rank does
  tcp_endpoint place;                      ///< where it is called
  std::string where;                       ///< the same, or where it calls from, for people
};

/// What one rank has to make. Over all ranks the calls form no circle, so that nobody waits for who waits for him.
struct link_plan {
  int rank = 0;
  std::vector<std::optional<link_peer>> peers;  ///< by rank; the own one is empty
  std::uint64_t ticket = 0;                     ///< shows that a caller means these connections
  std::string secret;
  std::optional<boost::asio::ip::address> source;  ///< from which to call, where the user chose an interface
};

/// A rank's connections to each other rank, while they are made. A `Barrier` keeps the ranks together: `limit(until)` is
/// what to wait with, `arrive(until)` returns once all ranks have called it, `fail(code, culprit, what)` throws, on every
/// rank; `came` says what a rank has done that has come so far.
template <byte_stream Stream, class Barrier>
class link_builder {
 public:
  link_builder(boost::asio::io_context& context, const link_plan& plan, Barrier& barrier)
      : context_(context), plan_(plan), barrier_(barrier), sockets_(plan.peers.size()) {}

  /// Calls whom it has to call, and is called at `own` by the others.
  std::vector<std::optional<asio_link<Stream>>> connect(boost::asio::ip::tcp::acceptor own, deadline until) {
    for (std::size_t peer = 0; peer < sockets_.size(); ++peer) {
      if (plan_.peers[peer] && plan_.peers[peer]->side == stream_side::caller) {
        call(peer, channel::payload, until);
        call(peer, channel::control, until);
      }
    }
    const std::string listens_at = to_text(own.local_endpoint());
    reception desk(context_, std::move(own), plan_.secret,
                   [this](tcp_socket guest, std::span<const std::byte> body) { receive(std::move(guest), body); });
    if (!run_until(context_, barrier_.limit(until), [this] { return missing() == sockets_.size(); })) {
      const link_peer& who = *plan_.peers[missing()];
      barrier_.fail(errc::timed_out, who.name,
                    "rank " + std::to_string(who.name) + " (" + who.where + ") " + Barrier::came +
                        ", but never called " + listens_at + to_text_of_refused(desk.refused()));
    }
    // Who shakes hands listens to nobody else. Before that, everybody has a connection to everybody: so that who is lost
    // from here on is missed by all.
    barrier_.arrive(until);
    std::vector<std::optional<asio_link<Stream>>> links(sockets_.size());
    const auto interfaces = interface_addresses();
    for (std::size_t peer = 0; peer < sockets_.size(); ++peer) {
      if (sockets_[peer][0]) {
        links[peer].emplace(make_link(peer, interfaces, until));
      }
    }
    barrier_.arrive(until);
    return links;
  }

 private:
  void call(std::size_t peer, channel which, deadline until) {
    const link_peer& who = *plan_.peers[peer];
    const bool fits = plan_.source && plan_.source->is_v4() == who.place.address().is_v4();
    std::string fault;
    const wait_limit limit = barrier_.limit(until);
    auto socket = connect_until(context_, who.place, fits ? plan_.source : std::nullopt, limit, fault);
    if (socket) {
      const std::string route = route_of(*socket);
      if (const auto unproved = prove_secret(context_, *socket, plan_.secret, limit)) {
        fault = route + ": " + *unproved;
        socket.reset();
      }
    }
    if (!socket) {
      barrier_.fail(errc::peer_lost, who.name, "rank " + std::to_string(who.name) + " can't be reached, " + fault);
    }
    send_message(*socket, message_kind::introduction,
                 mesh_call{plan_.ticket, static_cast<std::uint32_t>(plan_.rank), which}.encode());
    sockets_[peer][static_cast<std::size_t>(which)] = std::move(socket);
  }

  void receive(tcp_socket guest, std::span<const std::byte> body) {
    const auto said = mesh_call::decode(body);
    if (said && said->ticket == plan_.ticket && said->rank < sockets_.size() && is_awaited(said->rank)) {
      auto& socket = sockets_[said->rank][static_cast<std::size_t>(said->which)];
      if (!socket) {
        socket = std::move(guest);
      }
    }
  }

  bool is_awaited(std::size_t peer) const { return plan_.peers[peer] && plan_.peers[peer]->side == stream_side::host; }

  /// The first rank that has to call and has not; how many ranks there are where all have.
  std::size_t missing() const {
    std::size_t peer = 0;
    while (peer < sockets_.size() && !(is_awaited(peer) && (!sockets_[peer][0] || !sockets_[peer][1]))) {
      ++peer;
    }
    return peer;
  }

  /// All ranks go through their peers in one order, so that no two wait for each other, and that rank 0 is done first: it
  /// is who has to hear of losses.
  asio_link<Stream> make_link(std::size_t peer, const std::vector<interface_address>& interfaces, deadline until) {
    auto& [payload, control] = sockets_[peer];
    const link_peer& who = *plan_.peers[peer];
    const std::string route = route_of(*payload);
    boost::system::error_code closed;
    const link_ends ends{who.side, plain(payload->local_endpoint(closed).address()),
                         plain(payload->remote_endpoint(closed).address())};
    try {
      prepare_socket(*payload);
      prepare_socket(*control);
      Stream first(std::move(*payload), who.side, plan_.secret, until);
      Stream second(std::move(*control), who.side, plan_.secret, until);
      return {std::move(first), std::move(second), route, name_with_interface(ends.own, interfaces), ends};
    } catch (const std::runtime_error& fault) {
      barrier_.fail(errc::peer_lost, who.name, "rank " + std::to_string(who.name) + ", " + route + ": " + fault.what());
    }
  }

  boost::asio::io_context& context_;
  const link_plan& plan_;
  Barrier& barrier_;
  std::vector<std::array<std::optional<tcp_socket>, 2>> sockets_;  // by rank and channel
};

}  // namespace gradweave::detail
