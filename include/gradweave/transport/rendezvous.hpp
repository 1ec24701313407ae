/// @file
/// How the processes of a job find each other: rank 0 receives them at an address that all know, compares what they
/// came for, and hands out a table of everybody's addresses; then each connects to all ranks below it.
///
/// Before somebody has said that he belongs to the job he can hold a few KiB for a few seconds, whatever he sends.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/reception.hpp>
#include <gradweave/transport/rendezvous_options.hpp>
#include <gradweave/version.hpp>
#include <gradweave/wire.hpp>

namespace gradweave {

namespace detail {

using tcp_endpoint = boost::asio::ip::tcp::endpoint;
using tcp_socket = boost::asio::ip::tcp::socket;

inline std::string to_text(const tcp_endpoint& endpoint) {
  return endpoint.address().to_string() + " port " + std::to_string(endpoint.port());
}

[[noreturn]] inline void fail_rendezvous(const rendezvous_options& options, errc code, int culprit,
                                         const std::string& what) {
  throw sync_error({code,
                    culprit,
                    -1,
                    -1,
                    {},
                    "rendezvous of job '" + options.job + "' at " + options.address + " port " +
                        std::to_string(options.port) + ", rank " + std::to_string(options.rank) + ": " + what});
}

/// Runs the context until `done` or the deadline. False where time ran out.
template <class Done>
bool run_until(boost::asio::io_context& context, deadline until, Done&& done) {
  context.restart();
  while (!done()) {
    if (context.run_one_until(until) == 0 && std::chrono::steady_clock::now() >= until) {
      return false;
    }
    context.restart();
  }
  return true;
}

/// Connects to `endpoints` until one accepts or the deadline has passed.
template <class Endpoints>
std::optional<tcp_socket> connect_until(boost::asio::io_context& context, const Endpoints& endpoints, deadline until,
                                        std::string& last_fault) {
  tcp_socket socket(context);
  bool done = false;
  boost::system::error_code fault;
  boost::asio::async_connect(socket, endpoints, [&](boost::system::error_code outcome, const auto&) {
    fault = outcome;
    done = true;
  });
  if (!run_until(context, until, [&] { return done; })) {
    socket.close();
    run_until(context, deadline::max(), [&] { return done; });
    last_fault = "no answer";
    return std::nullopt;
  }
  if (fault) {
    last_fault = fault.message();
    return std::nullopt;
  }
  return socket;
}

/// Reads exactly `room.size()` bytes, or says why not.
inline std::optional<std::string> read_until(boost::asio::io_context& context, tcp_socket& socket,
                                             std::span<std::byte> room, deadline until) {
  bool done = false;
  boost::system::error_code fault;
  boost::asio::async_read(socket, boost::asio::buffer(room.data(), room.size()),
                          [&](boost::system::error_code outcome, std::size_t) {
                            fault = outcome;
                            done = true;
                          });
  if (!run_until(context, until, [&] { return done; })) {
    socket.close();
    run_until(context, deadline::max(), [&] { return done; });
    return "no answer in time";
  }
  return fault ? std::optional(fault.message()) : std::nullopt;
}

/// What a rank says when it comes.
struct hello {
  std::string version;
  std::string job;
  std::uint32_t size = 0;
  std::uint32_t rank = 0;
  std::uint16_t port = 0;  // at which it can be called

  std::vector<std::byte> encode() const {
    byte_writer out;
    out.text(version, 64);
    out.text(job, 256);
    out.number(size);
    out.number(rank);
    out.number(port);
    return {out.bytes().begin(), out.bytes().end()};
  }

  static std::optional<hello> decode(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    hello read;
    read.version = in.text(64);
    read.job = in.text(256);
    read.size = in.number<std::uint32_t>();
    read.rank = in.number<std::uint32_t>();
    read.port = in.number<std::uint16_t>();
    return in.complete() ? std::optional(read) : std::nullopt;
  }
};

/// What rank 0 answers: why the job can't be, or the table.
struct welcome {
  std::string fault;
  std::int32_t culprit = -1;
  std::uint64_t secret = 0;  // shown when ranks connect to each other
  std::vector<std::pair<std::string, std::uint16_t>> table;

  static constexpr std::size_t bytes_max = std::size_t{1} << 20;

  std::vector<std::byte> encode() const {
    byte_writer out;
    out.text(fault, 2048);
    out.number(static_cast<std::uint32_t>(culprit));
    out.number(secret);
    out.number(static_cast<std::uint32_t>(table.size()));
    for (const auto& [address, port] : table) {
      out.text(address, 64);
      out.number(port);
    }
    return {out.bytes().begin(), out.bytes().end()};
  }

  static std::optional<welcome> decode(std::span<const std::byte> bytes) {
    byte_reader in(bytes);
    welcome read;
    read.fault = in.text(2048);
    read.culprit = static_cast<std::int32_t>(in.number<std::uint32_t>());
    read.secret = in.number<std::uint64_t>();
    for (auto left = in.number<std::uint32_t>(); left != 0 && !in.failed(); --left) {
      std::string address = in.text(64);
      read.table.emplace_back(std::move(address), in.number<std::uint16_t>());
    }
    // A refusal's table is not used, and may be without addresses.
    const bool is_usable =
        !read.fault.empty() || std::all_of(read.table.begin(), read.table.end(), [](const auto& place) {
          boost::system::error_code malformed;
          boost::asio::ip::make_address(place.first, malformed);
          return !malformed;
        });
    return in.complete() && is_usable ? std::optional(read) : std::nullopt;
  }
};

}  // namespace detail
}  // namespace gradweave
