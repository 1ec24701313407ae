/// @file
/// Jobs over TCP inside one process, each rank a thread, on the loopback interface.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/launch.hpp>

namespace gradweave::tests {

/// A port that was free a moment ago.
inline std::uint16_t free_port() { return detail::reserved_port(0).number(); }

/// Calls `body(rank)` on `size` threads and rethrows the first exception, that of the lowest rank.
template <class Body>
void on_threads(int size, Body&& body) {
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        thrown[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::exception_ptr& each : thrown) {
    if (each) {
      std::rethrow_exception(each);
    }
  }
}

/// As backend::run_loopback, over TCP.
template <class Body>
void run_tcp(int size, Body&& body, backend::scheduled_options wait = {}, bool share_memory = false) {
  const detail::reserved_port place(0);
  on_threads(size, [&](int rank) {
    body(backend::tcp::from_options(
        {.meet = {.rank = rank, .size = size, .port = place.number()}, .wait = wait, .share_memory = share_memory}));
  });
}

/// The ends of a job of `size` ranks.
template <byte_stream Stream = tcp_stream>
std::vector<basic_asio_transport<Stream>> connect_tcp(int size, const std::string& secret = {}) {
  const detail::reserved_port place(0);
  std::vector<std::optional<basic_asio_transport<Stream>>> made(static_cast<std::size_t>(size));
  on_threads(size, [&](int rank) {
    made[static_cast<std::size_t>(rank)].emplace(
        connect_mesh<Stream>({.rank = rank, .size = size, .port = place.number(), .secret = secret}));
  });
  std::vector<basic_asio_transport<Stream>> ends;
  for (auto& each : made) {
    ends.push_back(std::move(*each));
  }
  return ends;
}

}  // namespace gradweave::tests
