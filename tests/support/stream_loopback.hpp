/// @file
/// A stream backend whose ranks are threads of one process: streams of a simulated machine carry the collectives, loopback the
/// control.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/overlap/watching_thread.hpp>

#include "tests/support/simulated_device.hpp"

namespace gradweave::tests {

/// Models stream_backend.
class stream_loopback {
 public:
  using stream = simulated_device::stream;
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::stream;
  static constexpr collective_set capabilities = {collective::all_reduce, collective::all_gather,
                                                  collective::all_to_all, collective::broadcast};

  stream_loopback(simulated_machine& machine, std::shared_ptr<simulated_communicator> communicator,
                  backend::loopback control)
      : machine_(&machine), communicator_(std::move(communicator)), control_(std::move(control)) {}

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }
  simulated_memory allocate_arena(std::size_t bytes) { return {*machine_, bytes}; }

  failure abort(failure cause) {
    cause = control_.abort(std::move(cause));
    {
      std::lock_guard lock(machine_->mutex);
      own().aborted = true;
    }
    machine_->changed.notify_all();
    return cause;
  }

  std::uint64_t payload_bytes_sent() const { return sent_; }
  void describe(description& sink) const {
    sink.add("name", "stream_loopback");
    sink.add("size", size());
  }

  void enqueue(const collective_request& request, const stream& on) {
    const simulation_scope not_counted;
    machine_->enqueue(on, {.work = {},
                           .after = {},
                           .communicator = communicator_,
                           .rank = static_cast<std::size_t>(rank()),
                           .request = kept_request(request)});
    sent_ += total_bytes(request.data);
  }

  void check() {
    std::lock_guard lock(machine_->mutex);
    if (!own().failed.empty()) {
      throw sync_error({errc::internal, rank(), -1, -1, {}, own().failed});
    }
  }

  backend::loopback& control() { return control_; }

 private:
  simulated_communicator::end& own() { return communicator_->ends[static_cast<std::size_t>(rank())]; }

  simulated_machine* machine_;
  std::shared_ptr<simulated_communicator> communicator_;
  backend::loopback control_;
  std::uint64_t sent_ = 0;
};

static_assert(stream_backend<stream_loopback>);

/// The overlap policy for it.
struct simulated_stream_lane : overlap::watching_thread {
  simulated_machine* machine = nullptr;
  simulated_device::stream lane;
  std::shared_ptr<device_faults> faults = std::make_shared<device_faults>();
  std::chrono::milliseconds longest{20'000};

  friend bool operator==(const simulated_stream_lane& a, const simulated_stream_lane& b) { return a.lane == b.lane; }

  simulated_device make_device() const { return {*machine, lane, faults}; }
  std::chrono::milliseconds deadline() const { return longest; }
  void describe(description& sink) const { sink.add("name", "simulated_stream"); }
};

static_assert(stream_overlap_policy<simulated_stream_lane>);

/// What a rank is given.
struct stream_rank {
  stream_loopback backend;
  simulated_stream_lane overlap;
  simulated_machine& machine;
};

/// Runs `body(stream_rank)` on `size` threads, one a rank. An exception ends the process: bodies catch what they expect.
template <class Body>
void run_streams(simulated_machine& machine, int size, Body&& body,
                 std::shared_ptr<simulated_communicator> communicator = {},
                 std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  communicator = communicator ? communicator : std::make_shared<simulated_communicator>(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (backend::loopback& control : backend::make_loopback(size, {.timeout = deadline})) {
    threads.emplace_back([&, own = std::move(control)]() mutable {
      simulated_stream_lane overlap;
      overlap.machine = &machine;
      overlap.lane = machine.make_queue();
      overlap.longest = deadline;
      body(stream_rank{stream_loopback(machine, communicator, std::move(own)), overlap, machine});
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace gradweave::tests
