#include <gradweave/transport/mesh_barrier.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>

#include <gradweave/launch.hpp>
#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/mesh.hpp>
#include <gradweave/transport/tls.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace gradweave::detail;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

/// How far a rank comes.
struct moment {
  std::size_t connections = 0;  ///< that it makes; rank 0: that are made to it
  enum { connects, says_so, hears_so_of_all } then = connects;
};

/// Joins a job as connect_mesh does, up to a moment, where it calls `end` with all of its connections open.
template <class End>
void join_until(const rendezvous_options& options, const moment& last, End&& end) {
  boost::asio::io_context context;
  const auto until = std::chrono::steady_clock::now() + options.timeout;
  auto acceptor = listen_at(context, 0);
  const mesh_place own{std::nullopt, acceptor.local_endpoint().port()};
  std::vector<tcp_socket> held;
  if (options.rank == 0) {
    visit job = rendezvous_host(context, options, own).run(until);
    mesh_barrier barrier(context, options, std::move(job.connections));
    {
      reception desk(context, std::move(acceptor), options.secret,
                     [&](tcp_socket guest, std::span<const std::byte>) { held.push_back(std::move(guest)); });
      run_until(context, until, [&] { return held.size() >= last.connections; });
    }
    if (last.then == moment::hears_so_of_all) {
      barrier.arrive(until);
    }
    end();
    return;
  }
  visit job = visit_rendezvous(context, options, own, until);
  for (std::size_t i = 0; i < last.connections; ++i) {
    const auto& [address, port] = job.answer.table[i / 2];
    const tcp_endpoint place(address.empty() ? job.host_address : boost::asio::ip::make_address(address), port);
    std::string fault;
    auto socket = connect_until(context, place, std::nullopt, until, fault);
    // Another may have found out, and left, before this one is through with its part.
    if (!socket || prove_secret(context, *socket, options.secret, until)) {
      return;
    }
    send_message(
        *socket, message_kind::introduction,
        mesh_call{job.answer.ticket, static_cast<std::uint32_t>(options.rank), static_cast<channel>(i % 2)}.encode());
    held.push_back(std::move(*socket));
  }
  if (last.then == moment::says_so) {
    send_message(*job.connections[0], message_kind::arrived, {});
  } else if (last.then == moment::hears_so_of_all) {
    mesh_barrier barrier(context, options, std::move(job.connections));
    barrier.arrive(until);
    end();
    return;
  }
  end();
}

/// What each rank but one is told, which comes no further than to a moment and then does `end`.
template <class Stream, class End>
std::vector<std::optional<failure>> told_without(const rendezvous_options& options, int lost, const moment& last,
                                                 End&& end) {
  const reserved_port held(0);
  std::vector<std::optional<failure>> told(static_cast<std::size_t>(options.size));
  on_threads(options.size, [&](int rank) {
    rendezvous_options place = options;
    place.rank = rank;
    place.port = held.number();
    if (rank == lost) {
      join_until(place, last, end);
      return;
    }
    try {
      connect_mesh<Stream>(place);
    } catch (const sync_error& error) {
      told[static_cast<std::size_t>(rank)] = error.cause();
    }
    ++end.others_done;
  });
  return told;
}

/// A rank that is gone at once.
struct vanish {
  std::atomic<int> others_done = 0;
  void operator()() const {}
};

/// A rank that says nothing more, and does not go.
struct fall_silent {
  std::atomic<int> others_done = 0;
  int others = 0;
  void operator()() const {
    while (others_done != others) {
      std::this_thread::sleep_for(5ms);
    }
  }
};

/// All other ranks name the lost one, with this code where that is certain.
void check_named(const std::vector<std::optional<failure>>& told, int lost, std::optional<errc> code) {
  for (std::size_t rank = 0; rank < told.size(); ++rank) {
    if (rank != static_cast<std::size_t>(lost)) {
      CAPTURE(rank);
      REQUIRE(told[rank]);
      CAPTURE(told[rank]->detail);
      CHECK(told[rank]->rank == lost);
      CHECK(told[rank]->code == code.value_or(told[rank]->code));
    }
  }
}

template <class Stream>
void check_loss(rendezvous_options options, int lost, const moment& last) {
  CAPTURE(options.size);
  CAPTURE(lost);
  CAPTURE(last.connections);
  CAPTURE(static_cast<int>(last.then));
  const testing::watchdog guard("a rank that is lost while the mesh is made");
  options.timeout = 60s;
  const auto began = std::chrono::steady_clock::now();
  vanish end;
  const auto told = told_without<Stream>(options, lost, last, end);
  CHECK(std::chrono::steady_clock::now() - began < 20s);
  check_named(told, lost, errc::peer_lost);
}

/// Every rank, at every moment.
template <class Stream>
void check_losses(const rendezvous_options& options) {
  for (int lost = 0; lost < options.size; ++lost) {
    const int others = lost == 0 ? options.size - 1 : lost;
    const std::size_t all = 2 * static_cast<std::size_t>(others);
    for (std::size_t connections = 0; connections <= all; ++connections) {
      check_loss<Stream>(options, lost, {connections});
    }
    if (lost != 0) {
      check_loss<Stream>(options, lost, {all, moment::says_so});
    }
    if (lost == 0 || lost == options.size - 1) {  // those in between are also called
      check_loss<Stream>(options, lost, {all, moment::hears_so_of_all});
    }
  }
}

}  // namespace

TEST_CASE("mesh_barrier: a rank that is lost while the mesh is made is named by all others at once") {
  for (const int size : {2, 3, 4}) {
    check_losses<tcp_stream>({.size = size});
  }
}

TEST_CASE("mesh_barrier: a rank that is lost while the mesh is made is named with a secret, and with TLS") {
  for (const int size : {2, 3, 4}) {
    check_losses<tls_stream>({.size = size, .secret = "one"});
  }
  check_losses<tcp_stream>({.size = 3, .secret = "one"});
}

TEST_CASE("mesh_barrier: a rank that is lost while the mesh is made is named where a file was the meeting place") {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("gradweave_barrier_" + std::to_string(::getpid()))).string();
  check_losses<tcp_stream>({.size = 3, .file = file});
}

TEST_CASE("mesh_barrier: a rank that falls silent while the mesh is made is named by all others when time is up") {
  for (const int lost : {0, 1, 2, 3}) {
    for (const std::size_t connections : {0U, 2U}) {
      CAPTURE(lost);
      CAPTURE(connections);
      const testing::watchdog guard("a rank that falls silent while the mesh is made");
      fall_silent end;
      end.others = 3;
      const auto told = told_without<tcp_stream>({.size = 4, .timeout = 1s}, lost, {connections}, end);
      check_named(told, lost, std::nullopt);
    }
  }
}
