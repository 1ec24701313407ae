/// @file
/// The loopback backend: ranks are threads of one process. For tests, for trying things out, and for one process with
/// several workers.
#pragma once

#include <concepts>
#include <cstddef>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/scheduled.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/in_process.hpp>

namespace gradweave::backend {

/// One rank's end of a job inside one process.
using loopback = scheduled<in_process_transport>;

static_assert(host_backend<loopback>);

/// The backends of `size` ranks, rank 0's first. Hand one to each thread.
inline std::vector<loopback> make_loopback(int size, scheduled_options options = {}) {
  std::vector<loopback> ranks;
  for (in_process_transport& transport : in_process_transport::connect(size)) {
    ranks.emplace_back("loopback", std::move(transport), options);
  }
  return ranks;
}

/// Runs `body(loopback)` on `size` threads, one a rank, and joins them. If any of them throws, the others see their
/// peer gone; then the exception of the rank at fault is rethrown: the first that is not a sync_error, else the first.
template <std::invocable<loopback> Body>
void run_loopback(int size, Body&& body, scheduled_options options = {}) {
  std::vector<loopback> ranks = make_loopback(size, options);
  std::vector<std::exception_ptr> failures(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(std::move(ranks[rank]));
      } catch (...) {
        failures[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::exception_ptr consequence;
  for (const std::exception_ptr& thrown : failures) {
    if (thrown == nullptr) {
      continue;
    }
    try {
      std::rethrow_exception(thrown);
    } catch (const sync_error&) {
      consequence = consequence ? consequence : thrown;
    }
  }
  if (consequence) {
    std::rethrow_exception(consequence);
  }
}

}  // namespace gradweave::backend
