/// @file
/// `connect_mesh`: from a place in a job to a transport that reaches all of its ranks.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/interfaces.hpp>
#include <gradweave/transport/link_builder.hpp>
#include <gradweave/transport/mesh_barrier.hpp>
#include <gradweave/transport/rendezvous.hpp>
#include <gradweave/transport/rendezvous_options.hpp>
#include <gradweave/transport/stream.hpp>

namespace gradweave {

namespace detail {

/// The address that the user's choice of interfaces gives; the family is that of the meeting place.
inline std::optional<boost::asio::ip::address> own_address(boost::asio::io_context& context,
                                                           const rendezvous_options& options) {
  std::string unknown;
  const auto places = find_host(context, options, unknown);
  const auto like = places.empty() ? boost::asio::ip::address(boost::asio::ip::address_v4()) : places[0].address();
  return choose_address(options.interfaces, like, interface_addresses());
}

/// The calls that are to be made in a job that has met: each rank calls those below it.
inline link_plan plan_links(const rendezvous_options& options, const visit& job,
                            const std::optional<boost::asio::ip::address>& source) {
  link_plan plan{options.rank, {}, job.answer.ticket, options.secret, source};
  for (int rank = 0; rank < options.size; ++rank) {
    const auto& [address, port] = job.answer.table[static_cast<std::size_t>(rank)];
    const bool calls = rank < options.rank;
    plan.peers.emplace_back();
    if (rank != options.rank) {
      plan.peers.back() = link_peer{
          rank, calls ? stream_side::caller : stream_side::host,
          calls ? tcp_endpoint(address.empty() ? job.host_address : boost::asio::ip::make_address(address), port)
                : tcp_endpoint(),
          (address.empty() ? "on rank 0's host" : address) + " port " + std::to_string(port)};
    }
  }
  return plan;
}

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
  const link_plan plan = plan_links(options, job, address);
  auto links = link_builder<Stream, mesh_barrier>(*context, plan, barrier).connect(std::move(acceptor), until);
  return {std::move(context), options.rank, std::move(links), protection, {options.secret, address, options.timeout}};
}

}  // namespace gradweave
