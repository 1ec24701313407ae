/// @file
/// Devices that exist in this process only: streams are queues of functions, one thread runs them in an order that only events
/// and collectives limit, and memory is the host's. It shows whether what a lane enqueues is ordered as it must be.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/device/host_kernels.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/host_memory.hpp>

#include "tests/support/whole_collectives.hpp"

namespace gradweave::tests {

/// While one lives, its thread's allocations are the simulation's: a test that counts allocations leaves them out.
struct simulation_scope {
  static inline thread_local int depth = 0;
  simulation_scope() { ++depth; }
  simulation_scope(const simulation_scope&) = delete;
  simulation_scope& operator=(const simulation_scope&) = delete;
  ~simulation_scope() { --depth; }
};

/// The communicator of a job.
struct simulated_communicator {
  struct end {
    std::optional<kept_request> arrived;  ///< at the head of its stream
    bool done = false;                    ///< that one is over
    bool aborted = false;
    std::string failed;  ///< what check() tells
  };
  std::vector<end> ends;  // by rank
  std::uint64_t completed = 0;
  std::uint64_t fails_at = UINT64_MAX;  ///< the collective that never ends,
  std::size_t failing_rank = 0;         ///< since this rank's device fails in it

  explicit simulated_communicator(std::size_t ranks) : ends(ranks) {}

  /// Whether the collective at the head of that rank's stream is over, so far as its stream is concerned.
  bool is_over(std::size_t rank) const { return ends[rank].done || ends[rank].aborted; }

  /// Once all have come.
  void run_if_complete() {
    if (!std::ranges::all_of(ends, [](const end& each) { return each.arrived.has_value(); })) {
      return;
    }
    std::vector<kept_request> requests;
    for (const end& each : ends) {
      requests.push_back(*each.arrived);
    }
    std::string fault = mismatch_of(requests);
    if (completed == fails_at || !fault.empty()) {
      ends[failing_rank].failed = fault.empty() ? "the device failed" : fault;
      return;
    }
    run_whole(requests);
    ++completed;
    for (end& each : ends) {
      each.arrived.reset();
      each.done = true;
    }
  }
};

class simulated_machine {
 public:
  struct queue;
  /// A place in a queue: reached once so many of its operations are over.
  struct mark {
    std::shared_ptr<queue> in;
    std::uint64_t number = 0;
  };
  struct operation {
    std::function<void()> work;
    mark after;
    std::shared_ptr<simulated_communicator> communicator;
    std::size_t rank = 0;
    kept_request request;
  };
  struct queue {
    std::deque<operation> operations;
    std::uint64_t enqueued = 0, completed = 0;
    bool is_held = false;
  };

  /// `seed` picks among what could run next; not 0: and lets the host get ahead now and then.
  explicit simulated_machine(std::uint64_t seed = 0) : random_(seed), pauses_(seed != 0), thread_([this] { run(); }) {}
  simulated_machine(const simulated_machine&) = delete;
  simulated_machine& operator=(const simulated_machine&) = delete;
  ~simulated_machine() {
    {
      std::lock_guard lock(mutex);
      stopping_ = true;
    }
    changed.notify_all();
    thread_.join();
  }

  std::shared_ptr<queue> make_queue() {
    std::lock_guard lock(mutex);
    queues_.push_back(std::make_shared<queue>());
    return queues_.back();
  }

  mark enqueue(const std::shared_ptr<queue>& on, operation what) {
    const simulation_scope not_counted;
    std::lock_guard lock(mutex);
    on->operations.push_back(std::move(what));
    ++on->enqueued;
    changed.notify_all();
    return {on, on->enqueued};
  }

  /// Held, it runs nothing.
  void hold(const std::shared_ptr<queue>& which, bool holds) {
    std::lock_guard lock(mutex);
    which->is_held = holds;
    changed.notify_all();
  }

  bool is_reached(const mark& place) {
    std::lock_guard lock(mutex);
    return place.in == nullptr || place.in->completed >= place.number;
  }

  void wait(const mark& place) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return place.in == nullptr || place.in->completed >= place.number; });
  }

  /// Until nothing can run any more: everything is over, held, or waits for what is.
  void settle() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] {
      const simulation_scope not_counted;
      return !running_ && runnable().empty();
    });
  }

  /// What was given back stays, filled with NaNs: whoever still works on it is seen to.
  void bury(host_memory memory, std::size_t bytes) {
    const simulation_scope not_counted;
    std::memset(memory.data(), 0xff, bytes);
    std::lock_guard lock(mutex);
    buried_.push_back(std::move(memory));
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<std::size_t> uses_of_the_gone{0};  ///< by kernels, of extent tables

 private:
  static bool is_met(const mark& place) { return place.in == nullptr || place.in->completed >= place.number; }

  std::vector<queue*> runnable() {
    std::vector<queue*> found;
    for (const auto& each : queues_) {
      if (each->operations.empty() || each->is_held || !is_met(each->operations.front().after)) {
        continue;
      }
      const operation& head = each->operations.front();
      if (head.communicator != nullptr) {
        auto& end = head.communicator->ends[head.rank];
        if (!head.communicator->is_over(head.rank)) {
          if (!end.arrived) {
            end.arrived = head.request;
            head.communicator->run_if_complete();
          }
          if (!head.communicator->is_over(head.rank)) {
            continue;
          }
        }
      }
      found.push_back(each.get());
    }
    return found;
  }

  void run() {
    const simulation_scope not_counted;
    std::unique_lock lock(mutex);
    for (;;) {
      std::vector<queue*> could = runnable();
      if (could.empty()) {
        changed.notify_all();  // for settle()
        if (stopping_) {
          return;
        }
        changed.wait(lock);
        continue;
      }
      if (pauses_ && random_() % 8 == 0) {
        running_ = true;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::microseconds(random_() % 200));
        lock.lock();
        running_ = false;
        could = runnable();
        if (could.empty()) {
          continue;
        }
      }
      queue& next = *could[random_() % could.size()];
      operation now = std::move(next.operations.front());
      next.operations.pop_front();
      if (now.communicator != nullptr) {
        now.communicator->ends[now.rank].done = false;
      }
      if (now.work) {
        running_ = true;
        lock.unlock();
        now.work();
        lock.lock();
        running_ = false;
      }
      ++next.completed;
      changed.notify_all();
    }
  }

  std::vector<std::shared_ptr<queue>> queues_;
  std::vector<host_memory> buried_;
  std::mt19937_64 random_;
  bool pauses_;
  bool stopping_ = false;
  bool running_ = false;
  std::thread thread_;  // last: it uses all of the above
};

/// What a test changes of a device, to see that somebody notices.
struct device_faults {
  std::size_t waits = 0;                ///< so many there were
  std::size_t ignored_wait = SIZE_MAX;  ///< this one does nothing
  std::atomic<std::size_t> queries{0};
  std::atomic<bool> hurries{false};  ///< from now on everything enqueued is said to be over
};

/// Kernels are their host twins, when the stream gets there.
class simulated_kernels {
 public:
  using stream = std::shared_ptr<simulated_machine::queue>;
  /// As on a device, it must not be given back before the stream has got past its uses.
  class extent_table {
   public:
    explicit extent_table(host_kernels::extent_table table) : kept_(std::make_shared<kept_table>(std::move(table))) {}
    extent_table(extent_table&&) = default;
    extent_table& operator=(extent_table&&) = default;
    ~extent_table() {
      if (kept_ != nullptr) {
        kept_->is_gone = true;
      }
    }

   private:
    friend class simulated_kernels;
    struct kept_table {
      explicit kept_table(host_kernels::extent_table of) : table(std::move(of)) {}
      host_kernels::extent_table table;
      std::atomic<bool> is_gone{false};
    };
    std::shared_ptr<kept_table> kept_;
  };

  explicit simulated_kernels(simulated_machine& machine) : machine_(&machine) {}

  extent_table prepare(std::span<const extent> memory, element_kind kind) const {
    return extent_table(host_kernels{}.prepare(memory, kind));
  }
  void gather(stream on, extent_table& table, std::byte* packed) const {
    run(on, [machine = machine_, kept = table.kept_, packed] {
      machine->uses_of_the_gone += kept->is_gone ? 1 : 0;
      host_kernels{}.gather({}, kept->table, packed);
    });
  }
  void scatter(stream on, extent_table& table, const std::byte* packed, scatter_summary* summary) const {
    run(on, [machine = machine_, kept = table.kept_, packed, summary] {
      machine->uses_of_the_gone += kept->is_gone ? 1 : 0;
      host_kernels{}.scatter({}, kept->table, packed, summary);
    });
  }
  void scale(stream on, const scale_request& request) const {
    run(on, [request] { host_kernels{}.scale({}, request); });
  }
  void encode(stream on, const encode_request& request) const {
    run(on, [request] { host_kernels{}.encode({}, request); });
  }
  void sum(stream on, const sum_request& request) const {
    run(on, [request] { host_kernels{}.sum({}, request); });
  }
  void write_record(stream on, const record_request& request) const {
    run(on, [request] { host_kernels{}.write_record({}, request); });
  }
  void judge_records(stream on, const judge_request& request) const {
    run(on, [request] { host_kernels{}.judge_records({}, request); });
  }

 private:
  template <class Work>
  void run(const stream& on, Work work) const {
    const simulation_scope not_counted;
    machine_->enqueue(on, {.work = std::move(work), .after = {}, .communicator = {}, .rank = 0, .request = {}});
  }

  simulated_machine* machine_;
};

/// Memory that is filled with NaNs once it is given back.
class simulated_memory {
 public:
  simulated_memory(simulated_machine& machine, std::size_t bytes)
      : machine_(&machine), bytes_(bytes), memory_(host_memory(bytes)) {}
  simulated_memory(simulated_memory&& other) noexcept
      : machine_(other.machine_), bytes_(other.bytes_), memory_(std::exchange(other.memory_, std::nullopt)) {}
  simulated_memory& operator=(simulated_memory&& other) noexcept {
    release();
    machine_ = other.machine_;
    bytes_ = other.bytes_;
    memory_ = std::exchange(other.memory_, std::nullopt);
    return *this;
  }
  ~simulated_memory() { release(); }
  std::byte* data() const { return memory_->data(); }

 private:
  void release() {
    if (memory_) {
      machine_->bury(std::move(*memory_), bytes_);
    }
  }
  simulated_machine* machine_;
  std::size_t bytes_;
  std::optional<host_memory> memory_;
};

/// Models stream_device.
class simulated_device {
 public:
  using stream = simulated_kernels::stream;
  struct event {
    simulated_machine::mark last;
    event() = default;
    event(event&&) = default;
    event& operator=(event&&) = default;
  };
  struct stream_owner {
    stream own;
    stream get() const { return own; }
  };

  /// The lane's stream is `lane`, so that a test can hold it.
  simulated_device(simulated_machine& machine, stream lane, std::shared_ptr<device_faults> faults)
      : machine_(&machine), kernels_(machine), lane_(std::move(lane)), faults_(std::move(faults)) {}

  void enter() const {}
  stream_owner make_stream() const { return {lane_}; }
  event make_event() const { return {}; }
  void record(event& which, const stream& on) const {
    std::lock_guard lock(machine_->mutex);
    which.last = {on, on->enqueued};
  }
  void wait(const stream& on, const event& which) const {
    const simulation_scope not_counted;
    if (faults_->waits++ != faults_->ignored_wait) {
      machine_->enqueue(on, {.work = {}, .after = which.last, .communicator = {}, .rank = 0, .request = {}});
    }
  }
  bool is_reached(const event& which) const {
    ++faults_->queries;
    return faults_->hurries || machine_->is_reached(which.last);
  }
  simulated_memory allocate_pinned(std::size_t bytes) const { return {*machine_, bytes}; }
  void copy_to_host(const stream& on, std::byte* pinned, const std::byte* memory, std::size_t bytes) const {
    const simulation_scope not_counted;
    machine_->enqueue(on, {.work = [=] { std::memcpy(pinned, memory, bytes); },
                           .after = {},
                           .communicator = {},
                           .rank = 0,
                           .request = {}});
  }
  void synchronize(const stream& on) const {
    event now;
    record(now, on);
    if (!faults_->hurries) {
      machine_->wait(now.last);
    }
  }
  const simulated_kernels& kernels() const { return kernels_; }

 private:
  simulated_machine* machine_;
  simulated_kernels kernels_;
  stream lane_;
  std::shared_ptr<device_faults> faults_;
};

static_assert(stream_device<simulated_device>);

}  // namespace gradweave::tests
