/// @file
/// `connect_mesh`: from a place in a job to a transport that reaches all of its ranks.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <netinet/tcp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/interfaces.hpp>
#include <gradweave/transport/introduction.hpp>
#include <gradweave/transport/mesh_barrier.hpp>
#include <gradweave/transport/reception.hpp>
#include <gradweave/transport/rendezvous.hpp>
#include <gradweave/transport/rendezvous_options.hpp>
#include <gradweave/transport/stream.hpp>

namespace gradweave {

namespace detail {

inline void prepare_socket(tcp_socket& socket) {
  socket.set_option(boost::asio::ip::tcp::no_delay(true));
  socket.set_option(boost::asio::socket_base::keep_alive(true));
  socket.non_blocking(true);
  const int milliseconds = 60'000;  // how long sent bytes may stay unacknowledged: a host that is gone, a cut cable
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

/// The address that the user's choice of interfaces gives; the family is that of the meeting place.
inline std::optional<boost::asio::ip::address> own_address(boost::asio::io_context& context,
                                                           const rendezvous_options& options) {
  std::string unknown;
  const auto places = find_host(context, options, unknown);
  const auto like = places.empty() ? boost::asio::ip::address(boost::asio::ip::address_v4()) : places[0].address();
  return choose_address(options.interfaces, like, interface_addresses());
}

/// A rank's connections to each other rank, while they are made.
template <byte_stream Stream>
class mesh_builder {
 public:
  mesh_builder(boost::asio::io_context& context, const rendezvous_options& options, const visit& job,
               mesh_barrier& barrier)
      : context_(context),
        options_(options),
        job_(job),
        barrier_(barrier),
        sockets_(static_cast<std::size_t>(options.size)) {}

  /// Calls those below this rank, and is called at `own` by those above.
  std::vector<std::optional<asio_link<Stream>>> connect(boost::asio::ip::tcp::acceptor own,
                                                        const std::optional<boost::asio::ip::address>& source,
                                                        deadline until) {
    for (int peer = 0; peer < options_.rank; ++peer) {
      for (const channel which : {channel::payload, channel::control}) {
        call(peer, which, source, until);
      }
    }
    const std::string listens_at = to_text(own.local_endpoint());
    reception desk(context_, std::move(own), options_.secret,
                   [this](tcp_socket guest, std::span<const std::byte> body) { receive(std::move(guest), body); });
    if (!run_until(context_, barrier_.limit(until), [this] { return missing() == options_.size; })) {
      barrier_.fail(errc::timed_out, missing(),
                    "rank " + std::to_string(missing()) + " (" + place_of(missing()) +
                        ") came to the rendezvous, but never called " + listens_at +
                        to_text_of_refused(desk.refused()));
    }
    // A rank that shakes hands does not listen to rank 0. Before it does, everybody has a connection to everybody: so
    // that who is lost from here on is missed by all.
    barrier_.arrive(until);
    std::vector<std::optional<asio_link<Stream>>> links(sockets_.size());
    const auto interfaces = interface_addresses();
    for (std::size_t peer = 0; peer < sockets_.size(); ++peer) {
      if (sockets_[peer][0]) {
        links[peer].emplace(make_link(static_cast<int>(peer), interfaces, until));
      }
    }
    barrier_.arrive(until);
    return links;
  }

 private:
  void call(int peer, channel which, const std::optional<boost::asio::ip::address>& source, deadline until) {
    const auto& [address, port] = job_.answer.table[static_cast<std::size_t>(peer)];
    const tcp_endpoint place(address.empty() ? job_.host_address : boost::asio::ip::make_address(address), port);
    const bool fits = source && source->is_v4() == place.address().is_v4();
    std::string fault;
    const wait_limit limit = barrier_.limit(until);
    auto socket = connect_until(context_, place, fits ? source : std::nullopt, limit, fault);
    if (socket) {
      const std::string route = route_of(*socket);
      if (const auto unproved = prove_secret(context_, *socket, options_.secret, limit)) {
        fault = route + ": " + *unproved;
        socket.reset();
      }
    }
    if (!socket) {
      barrier_.fail(errc::peer_lost, peer, "rank " + std::to_string(peer) + " can't be reached, " + fault);
    }
    send_message(*socket, message_kind::introduction,
                 mesh_call{job_.answer.ticket, static_cast<std::uint32_t>(options_.rank), which}.encode());
    sockets_[static_cast<std::size_t>(peer)][static_cast<std::size_t>(which)] = std::move(socket);
  }

  void receive(tcp_socket guest, std::span<const std::byte> body) {
    const auto said = mesh_call::decode(body);
    if (said && said->ticket == job_.answer.ticket && said->rank > static_cast<std::uint32_t>(options_.rank) &&
        said->rank < sockets_.size()) {
      auto& socket = sockets_[said->rank][static_cast<std::size_t>(said->which)];
      if (!socket) {
        socket = std::move(guest);
      }
    }
  }

  /// Where rank 0 says that a rank is.
  std::string place_of(int rank) const {
    const auto& [address, port] = job_.answer.table[static_cast<std::size_t>(rank)];
    return (address.empty() ? "on rank 0's host" : address) + " port " + std::to_string(port);
  }

  /// The first rank above this one that has not called; the size where all have.
  int missing() const {
    for (std::size_t rank = static_cast<std::size_t>(options_.rank) + 1; rank < sockets_.size(); ++rank) {
      if (!sockets_[rank][0] || !sockets_[rank][1]) {
        return static_cast<int>(rank);
      }
    }
    return options_.size;
  }

  /// All ranks go through their peers in order, so that no two wait for each other, and that rank 0 is done first: it is
  /// who has to hear of losses.
  asio_link<Stream> make_link(int peer, const std::vector<interface_address>& interfaces, deadline until) {
    auto& [payload, control] = sockets_[static_cast<std::size_t>(peer)];
    const stream_side side = peer < options_.rank ? stream_side::caller : stream_side::host;
    const std::string route = route_of(*payload);
    boost::system::error_code closed;
    const std::string here = name_with_interface(plain(payload->local_endpoint(closed).address()), interfaces);
    try {
      prepare_socket(*payload);
      prepare_socket(*control);
      Stream first(std::move(*payload), side, options_.secret, until);
      Stream second(std::move(*control), side, options_.secret, until);
      return {std::move(first), std::move(second), route, here};
    } catch (const std::runtime_error& fault) {
      barrier_.fail(errc::peer_lost, peer, "rank " + std::to_string(peer) + ", " + route + ": " + fault.what());
    }
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  const visit& job_;
  mesh_barrier& barrier_;
  std::vector<std::array<std::optional<tcp_socket>, 2>> sockets_;  // by rank and channel
};

}  // namespace detail

/// Meets the other ranks and connects to each of them, twice. Throws sync_error that names who is missing, or what does
/// not fit, on every rank that came; contract_violation where this host has no such interface, or where a secret is
/// needed and there is none.
template <byte_stream Stream = tcp_stream>
basic_asio_transport<Stream> connect_mesh(const rendezvous_options& options) {
  using namespace detail;
  require(options.size > 0 && options.rank >= 0 && options.rank < options.size,
          "connect_mesh: the rank must be at least 0 and below the size");
  require(options.job.size() <= hello::job_bytes_max && options.job.find('\n') == std::string::npos,
          "connect_mesh: the job's name must be one line of at most 256 bytes");
  require(options.ports >= 1 && options.port + options.ports <= 65536, "connect_mesh: there are no such ports");
  require(!Stream::needs_secret || !options.secret.empty(),
          "connect_mesh: without a secret there is no key to encrypt with; set GRADWEAVE_SECRET on all ranks");
  const char* const protection =
      options.secret.empty() ? "let in: the job is open to its network (set GRADWEAVE_SECRET)" : Stream::protection;
  auto context = std::make_unique<boost::asio::io_context>();
  if (options.size == 1) {
    return {std::move(context), 0, std::vector<std::optional<asio_link<Stream>>>(1), "none: there is one rank"};
  }
  const deadline until = std::chrono::steady_clock::now() + options.timeout;
  const auto address = own_address(*context, options);
  auto acceptor = listen_at(*context, 0, address);
  const mesh_place own{address, acceptor.local_endpoint().port()};
  visit job = options.rank == 0 ? rendezvous_host(*context, options, own).run(until)
                                : visit_rendezvous(*context, options, own, until);
  mesh_barrier barrier(*context, options, std::move(job.connections));
  auto links = mesh_builder<Stream>(*context, options, job, barrier).connect(std::move(acceptor), address, until);
  return {std::move(context), options.rank, std::move(links), protection};
}

}  // namespace gradweave
