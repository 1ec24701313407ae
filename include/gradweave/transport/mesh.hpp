/// @file
/// `connect_mesh`: from a place in a job to a transport that reaches all of its ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/tcp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/write.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/reception.hpp>
#include <gradweave/transport/rendezvous.hpp>
#include <gradweave/version.hpp>

namespace gradweave {

namespace detail {

inline boost::asio::ip::address plain(const boost::asio::ip::address& address) {
  return address.is_v6() && address.to_v6().is_v4_mapped()
             ? boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6())
             : address;
}

/// Listens at `port` of every address of this host, IPv6 too where there is one. 0 is any port.
inline boost::asio::ip::tcp::acceptor listen_at(boost::asio::io_context& context, std::uint16_t port) {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(context);
  boost::system::error_code fault;
  acceptor.open(tcp::v6(), fault);
  const bool both = !fault;
  if (both) {
    acceptor.set_option(boost::asio::ip::v6_only(false));
  } else {
    acceptor.open(tcp::v4());
  }
  acceptor.set_option(tcp::acceptor::reuse_address(true));
  acceptor.bind({both ? tcp::v6() : tcp::v4(), port});
  acceptor.listen(4096);
  return acceptor;
}

inline void send_all(tcp_socket& to, std::span<const std::byte> body) {
  const auto message = in_envelope(body);
  boost::system::error_code ignored;  // who is gone by now is missed later
  boost::asio::write(to, boost::asio::buffer(message), ignored);
}

/// Rank 0's part: receives everybody, compares, and answers.
class rendezvous_host {
 public:
  rendezvous_host(boost::asio::io_context& context, const rendezvous_options& options, std::uint16_t mesh_port)
      : context_(context), options_(options), guests_(static_cast<std::size_t>(options.size)) {
    answer_.table.resize(guests_.size());
    answer_.table[0].second = mesh_port;
    std::random_device random;
    answer_.secret = (static_cast<std::uint64_t>(random()) << 32) | random();
  }

  welcome run(deadline until) {
    std::optional<boost::asio::ip::tcp::acceptor> acceptor;
    try {
      acceptor.emplace(listen_at(context_, options_.port));
    } catch (const boost::system::system_error& fault) {
      fail_rendezvous(options_, errc::internal, 0, std::string("can't listen there: ") + fault.what());
    }
    reception desk(context_, std::move(*acceptor),
                   [this](tcp_socket guest, std::span<const std::byte> body) { receive(std::move(guest), body); });
    const bool ended = run_until(context_, until, [this] { return complete() || !answer_.fault.empty(); });
    if (!ended) {
      say_who_is_missing();
    }
    fill_table();
    for (auto& guest : guests_) {
      if (guest) {
        send_all(*guest, answer_.encode());
      }
    }
    if (!answer_.fault.empty()) {
      // Who comes a little late hears it too.
      run_until(context_, std::chrono::steady_clock::now() + std::chrono::seconds(2), [this] { return complete(); });
      fail_rendezvous(options_, ended ? errc::manifest_mismatch : errc::timed_out, answer_.culprit, answer_.fault);
    }
    return answer_;
  }

 private:
  bool complete() const {
    return std::all_of(guests_.begin() + 1, guests_.end(), [](const auto& guest) { return guest.has_value(); });
  }

  void receive(tcp_socket guest, std::span<const std::byte> body) {
    const auto came = hello::decode(body);
    if (!came) {
      return;
    }
    const auto refuse = [&](const std::string& why) {
      welcome refusal;
      refusal.fault = why;
      refusal.culprit = static_cast<std::int32_t>(came->rank);
      send_all(guest, refusal.encode());
    };
    const std::string who = "rank " + std::to_string(came->rank);
    if (came->job != options_.job) {
      refuse("another job, '" + options_.job + "', meets at this address; " + who + " came for '" + came->job +
             "': give each job a port or a job id of its own");
      return;
    }
    std::string fault;
    if (came->version != version_string) {
      fault = who + " has version " + came->version + " of gradweave, rank 0 " + std::string(version_string);
    } else if (came->size != static_cast<std::uint32_t>(options_.size)) {
      fault = who + " believes that the job has " + std::to_string(came->size) + " ranks, rank 0 " +
              std::to_string(options_.size);
    } else if (came->rank == 0 || came->rank >= came->size) {
      fault = "a second process came as " + who + " of " + std::to_string(came->size);
    } else if (guests_[came->rank]) {
      fault = "two processes came as " + who;
    }
    if (!fault.empty()) {
      answer_.fault = answer_.fault.empty() ? fault : answer_.fault;
      answer_.culprit = static_cast<std::int32_t>(came->rank);
    }
    if (!answer_.fault.empty()) {
      send_all(guest, answer_.encode());
      if (fault.empty()) {
        guests_[came->rank] = std::move(guest);
      }
      return;
    }
    answer_.table[came->rank].second = came->port;
    guests_[came->rank] = std::move(guest);
  }

  void say_who_is_missing() {
    std::string missing;
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      if (!guests_[rank]) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
        answer_.culprit = answer_.culprit < 0 ? static_cast<std::int32_t>(rank) : answer_.culprit;
      }
    }
    answer_.fault = "these ranks did not come within " + std::to_string(options_.timeout.count()) + " ms: " + missing;
  }

  /// Where each rank can be reached. Ranks on this host came over the loopback interface: to ranks on other hosts they
  /// are given with the address by which one of those reached this host.
  void fill_table() {
    std::optional<boost::asio::ip::address> outside;
    std::string inside = "127.0.0.1";
    std::vector<std::optional<boost::asio::ip::address>> from(guests_.size());
    for (std::size_t rank = 1; rank < guests_.size(); ++rank) {
      boost::system::error_code fault;
      const auto remote = guests_[rank] ? guests_[rank]->remote_endpoint(fault) : tcp_endpoint();
      if (!guests_[rank] || fault) {
        continue;
      }
      from[rank] = plain(remote.address());
      if (!from[rank]->is_loopback()) {
        outside = plain(guests_[rank]->local_endpoint(fault).address());
      } else {
        inside = from[rank]->to_string();
      }
    }
    for (std::size_t rank = 0; rank < guests_.size(); ++rank) {
      const bool here = !from[rank] || from[rank]->is_loopback();
      answer_.table[rank].first = here ? (outside ? outside->to_string() : inside) : from[rank]->to_string();
    }
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  std::vector<std::optional<tcp_socket>> guests_;
  welcome answer_;
};

/// The other ranks' part.
inline welcome visit_rendezvous(boost::asio::io_context& context, const rendezvous_options& options,
                                std::uint16_t mesh_port, deadline until) {
  using boost::asio::ip::tcp;
  std::string last_fault = "not tried";
  while (std::chrono::steady_clock::now() < until) {
    boost::system::error_code unresolved;
    tcp::resolver resolver(context);
    const auto places = resolver.resolve(options.address, std::to_string(options.port), unresolved);
    std::optional<tcp_socket> socket;
    if (unresolved) {
      last_fault = unresolved.message();
    } else {
      socket = connect_until(context, places, until, last_fault);
    }
    if (socket) {
      const hello own{std::string(version_string), options.job, static_cast<std::uint32_t>(options.size),
                      static_cast<std::uint32_t>(options.rank), mesh_port};
      send_all(*socket, own.encode());
      std::array<std::byte, envelope_bytes> envelope{};
      auto fault = read_until(context, *socket, envelope, until + std::chrono::seconds(3));
      const auto length = fault ? std::nullopt : open_envelope(envelope, welcome::bytes_max);
      std::vector<std::byte> body(length.value_or(0));
      if (length) {
        fault = read_until(context, *socket, body, until + std::chrono::seconds(3));
      }
      const auto answer = length && !fault ? welcome::decode(body) : std::nullopt;
      if (answer) {
        if (!answer->fault.empty()) {
          fail_rendezvous(options, errc::manifest_mismatch, answer->culprit, answer->fault);
        }
        if (answer->table.size() != static_cast<std::size_t>(options.size)) {
          fail_rendezvous(options, errc::internal, 0, "rank 0's table has the wrong length");
        }
        return *answer;
      }
      last_fault = fault.value_or("who answers there is not gradweave");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  fail_rendezvous(options, errc::timed_out, 0,
                  "rank 0 was not reached within " + std::to_string(options.timeout.count()) + " ms: " + last_fault);
}

enum class channel : std::uint8_t { payload = 0, control = 1 };

inline std::vector<std::byte> introduce(std::uint64_t secret, int rank, channel which) {
  byte_writer out;
  out.number(secret);
  out.number(static_cast<std::uint32_t>(rank));
  out.number(static_cast<std::uint8_t>(which));
  return {out.bytes().begin(), out.bytes().end()};
}

inline void prepare_socket(tcp_socket& socket) {
  socket.set_option(boost::asio::ip::tcp::no_delay(true));
  socket.set_option(boost::asio::socket_base::keep_alive(true));
  socket.non_blocking(true);
  const int milliseconds = 60'000;  // how long sent bytes may stay unacknowledged: a host that is gone, a cut cable
  (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

}  // namespace detail

/// Meets the other ranks and connects to each of them. Throws sync_error that names who is missing, or what does not
/// fit, on every rank that came.
inline asio_transport connect_mesh(const rendezvous_options& options) {
  using namespace detail;
  require(options.size > 0 && options.rank >= 0 && options.rank < options.size,
          "connect_mesh: the rank must be at least 0 and below the size");
  auto context = std::make_unique<boost::asio::io_context>();
  const auto size = static_cast<std::size_t>(options.size);
  std::vector<std::optional<asio_link>> links(size);
  if (size == 1) {
    return {std::move(context), 0, std::move(links)};
  }
  const deadline until = std::chrono::steady_clock::now() + options.timeout;
  auto acceptor = listen_at(*context, 0);
  const std::uint16_t mesh_port = acceptor.local_endpoint().port();
  const welcome job = options.rank == 0 ? rendezvous_host(*context, options, mesh_port).run(until)
                                        : visit_rendezvous(*context, options, mesh_port, until);

  // Two connections a peer: this rank calls those below it, and is called by those above.
  std::vector<std::array<std::optional<tcp_socket>, 2>> sockets(size);
  for (int peer = 0; peer < options.rank; ++peer) {
    const auto& [address, port] = job.table[static_cast<std::size_t>(peer)];
    const std::array place{tcp_endpoint(boost::asio::ip::make_address(address), port)};
    for (const channel which : {channel::payload, channel::control}) {
      std::string fault;
      auto socket = connect_until(*context, place, until, fault);
      if (!socket) {
        fail_rendezvous(options, errc::peer_lost, peer,
                        "rank " + std::to_string(peer) + " can't be reached at " + to_text(place[0]) + ": " + fault);
      }
      send_all(*socket, introduce(job.secret, options.rank, which));
      sockets[static_cast<std::size_t>(peer)][static_cast<std::size_t>(which)] = std::move(socket);
    }
  }
  const auto all_called = [&] {
    return std::all_of(sockets.begin() + options.rank + 1, sockets.end(),
                       [](const auto& pair) { return pair[0] && pair[1]; });
  };
  {
    reception desk(*context, std::move(acceptor), [&](tcp_socket guest, std::span<const std::byte> body) {
      byte_reader in(body);
      const auto secret = in.number<std::uint64_t>();
      const auto rank = in.number<std::uint32_t>();
      const auto which = in.number<std::uint8_t>();
      if (in.complete() && secret == job.secret && rank > static_cast<std::uint32_t>(options.rank) && rank < size &&
          which < 2 && !sockets[rank][which]) {
        sockets[rank][which] = std::move(guest);
      }
    });
    if (!run_until(*context, until, all_called)) {
      for (std::size_t rank = static_cast<std::size_t>(options.rank) + 1; rank < size; ++rank) {
        if (!sockets[rank][0] || !sockets[rank][1]) {
          fail_rendezvous(options, errc::timed_out, static_cast<int>(rank),
                          "rank " + std::to_string(rank) + " came to the rendezvous, but never connected");
        }
      }
    }
  }
  for (std::size_t peer = 0; peer < size; ++peer) {
    if (sockets[peer][0]) {
      prepare_socket(*sockets[peer][0]);
      prepare_socket(*sockets[peer][1]);
      links[peer].emplace(asio_link{std::move(*sockets[peer][0]), std::move(*sockets[peer][1])});
    }
  }
  return {std::move(context), options.rank, std::move(links)};
}

}  // namespace gradweave
