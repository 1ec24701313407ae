/// @file
/// Connects a group of a job's ranks to each other, beside the connections that there are. There is no rendezvous: each rank
/// listens, the ports travel over the job, and the connections lead from and to where those of the job do.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include <gradweave/error.hpp>
#include <gradweave/transport/asio_link.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/link_builder.hpp>
#include <gradweave/transport/reception.hpp>

namespace gradweave::detail {

/// What connections of a group have in common with those of the job.
struct connection_terms {
  std::string secret;
  std::optional<boost::asio::ip::address> address;  ///< to talk from, where the user chose an interface
  std::chrono::milliseconds timeout = std::chrono::minutes(2);
};

/// Keeps all ranks of the job together while groups are connected. Who waits for a connection looks after the job
/// meanwhile: a rank that fails or is lost is told there, and would be waited for in vain.
template <class Parent, class Gather>
class group_barrier {
 public:
  static constexpr const char* came = "entered split";

  group_barrier(boost::asio::io_context& context, Parent& parent, Gather& gather)
      : context_(context), parent_(parent), gather_(gather), timer_(context) {
    look_again();
  }
  group_barrier(const group_barrier&) = delete;
  group_barrier& operator=(const group_barrier&) = delete;
  ~group_barrier() {
    timer_.cancel();
    context_.restart();
    context_.poll();  // lets what was cancelled go
  }

  wait_limit limit(deadline until) const { return {until, in_vain_}; }

  /// Returns once all ranks of the job have called it as often. Throws what the job failed of.
  void arrive(deadline) {
    const std::byte here{1};
    std::vector<std::byte> all(static_cast<std::size_t>(parent_.size()));
    gather_(std::span(&here, 1), std::span(all));
  }

  /// Whoever splits tells the job.
  [[noreturn]] void fail(errc code, int culprit, const std::string& what) {
    look();
    if (const failure* cause = parent_.aborted()) {
      throw sync_error(*cause);
    }
    if (lost_ >= 0) {
      throw sync_error({errc::peer_lost,
                        lost_,
                        -1,
                        -1,
                        {},
                        "rank " + std::to_string(lost_) + " is gone before all groups were connected (" +
                            parent_.route(lost_) + ")"});
    }
    throw sync_error({code, culprit, -1, -1, {}, "split, rank " + std::to_string(parent_.rank()) + ": " + what});
  }

 private:
  void look() {
    for (int peer = 0; lost_ < 0 && peer < parent_.size(); ++peer) {
      lost_ = peer != parent_.rank() && parent_.peer_closed(peer) ? peer : -1;
    }
    in_vain_ = lost_ >= 0 || parent_.aborted() != nullptr;
  }

  void look_again() {
    timer_.expires_after(std::chrono::milliseconds(20));
    timer_.async_wait([this](boost::system::error_code stopped) {
      if (!stopped) {
        look();
        look_again();
      }
    });
  }

  boost::asio::io_context& context_;
  Parent& parent_;
  Gather& gather_;
  boost::asio::steady_timer timer_;
  int lost_ = -1;
  bool in_vain_ = false;
};

/// A rank's place in its group, and its connections there, by the group's ranks.
template <byte_stream Stream>
struct group_links {
  int rank = 0;
  std::vector<std::optional<asio_link<Stream>>> links;
};

/// What all ranks have to know of a rank before they connect. A group takes the ticket of its first member.
struct group_card {
  std::uint64_t ticket = 0;
  std::uint64_t port = 0;
};

/// The calls that are to be made in a group: in the direction in which the job's were made.
template <class Parent>
link_plan plan_group(const Parent& parent, std::span<const int> members, std::span<const group_card> cards,
                     const connection_terms& terms) {
  link_plan plan{0, {}, cards[static_cast<std::size_t>(members.front())].ticket, terms.secret, terms.address};
  for (const int member : members) {
    plan.peers.emplace_back();
    if (member == parent.rank()) {
      plan.rank = static_cast<int>(plan.peers.size()) - 1;
      continue;
    }
    const auto port = static_cast<std::uint16_t>(cards[static_cast<std::size_t>(member)].port);
    const link_ends& ends = parent.ends(member);
    plan.peers.back() = link_peer{member, ends.side, tcp_endpoint(ends.peer, port),
                                  ends.peer.to_string() + " port " + std::to_string(port)};
  }
  return plan;
}

/// One rank's part; all ranks of the job call it at once. `members` are ranks of `parent`, in the group's order; where there
/// are none, or only this one, there is nothing to connect. Throws sync_error that names a rank of `parent`.
template <byte_stream Stream, class Parent, class Gather>
group_links<Stream> connect_group(boost::asio::io_context& context, Parent& parent, std::span<const int> members,
                                  const connection_terms& terms, Gather& gather) {
  const deadline until = std::chrono::steady_clock::now() + terms.timeout;
  const bool connects = members.size() > 1;
  std::optional<boost::asio::ip::tcp::acceptor> acceptor;
  group_card own;
  if (connects) {
    std::random_device random;
    acceptor.emplace(listen_at(context, 0, terms.address));
    own = {(static_cast<std::uint64_t>(random()) << 32) | random(), acceptor->local_endpoint().port()};
  }
  std::vector<group_card> cards(static_cast<std::size_t>(parent.size()));
  gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(cards)));
  group_barrier barrier(context, parent, gather);
  if (!connects) {
    barrier.arrive(until);
    barrier.arrive(until);
    return {0, std::vector<std::optional<asio_link<Stream>>>(members.size())};
  }
  const link_plan plan = plan_group(parent, members, cards, terms);
  return {plan.rank,
          link_builder<Stream, decltype(barrier)>(context, plan, barrier).connect(std::move(*acceptor), until)};
}

}  // namespace gradweave::detail
