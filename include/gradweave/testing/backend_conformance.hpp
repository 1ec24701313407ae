/// @file
/// The conformance kit of host backends. docs/reference/backend.md has what it checks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/collective_checks.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/payload_ledger.hpp>

namespace gradweave::testing {

struct backend_conformance_options {
  std::vector<int> sizes = {1, 2, 3, 4};
  std::uint64_t seed = 1;
  /// How much more payload than the least that any algorithm needs may travel, as a share: 0 for rings.
  double payload_slack = 0;
};

namespace detail {

template <host_backend Backend>
backend_driver drive(Backend& backend, conformance_recorder& recorder) {
  return {backend.rank(),
          backend.size(),
          Backend::capabilities,
          [&backend](const collective_request& request) { run_collective(backend, request); },
          [&backend] { return backend.payload_bytes_sent(); },
          recorder};
}

/// What came of a collective that was meant to fail.
struct collective_outcome {
  bool threw = false;
  failure cause;
};

/// As a synchronizer does: what goes wrong on one rank is told to all.
template <host_backend Backend>
collective_outcome attempt(Backend& backend, const collective_request& request) {
  try {
    run_collective(backend, request);
    return {};
  } catch (const sync_error& error) {
    backend.abort(error.cause());
    return {true, error.cause()};
  }
}

/// Where ranks are processes, each of which goes through the kit, `run` also has `counter()`, the next of a row of counters,
/// which begin at 0 and which the processes share; `gather(outcomes)`, to which each rank contributes its own; and
/// `sum(numbers)` over all ranks.
template <class Run>
concept runs_processes =
    requires(Run& run, std::vector<collective_outcome>& outcomes, std::span<std::uint64_t> numbers) {
      { run.counter() } -> std::same_as<std::atomic<int>&>;
      run.gather(outcomes);
      run.sum(numbers);
    };

/// A counter that all ranks share.
template <class Run>
class common_counter {
 public:
  explicit common_counter(Run& run) : counter_(&own_) {
    if constexpr (runs_processes<Run>) {
      counter_ = &run.counter();
    }
  }
  common_counter(const common_counter&) = delete;
  common_counter& operator=(const common_counter&) = delete;

  std::atomic<int>& operator*() { return *counter_; }

 private:
  std::atomic<int> own_{0};
  std::atomic<int>* counter_;
};

/// Runs `body(backend)` on each rank and returns what it returned, by rank. What it throws is a failure of `what`.
template <class Run, class Body>
std::vector<collective_outcome> run_ranks(Run&& run, int size, conformance_recorder& recorder, const std::string& what,
                                          Body&& body) {
  std::vector<collective_outcome> outcomes(static_cast<std::size_t>(size));
  recorder.part(what, [&] {
    run(size, [&](auto backend) {
      recorder.part(what, [&] { outcomes[static_cast<std::size_t>(backend.rank())] = body(backend); });
    });
    if constexpr (runs_processes<std::remove_reference_t<Run>>) {
      run.gather(outcomes);
    }
  });
  return outcomes;
}

template <host_backend Backend>
void check_arena(Backend& backend, conformance_recorder& recorder) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, std::size_t{1} << 20}) {
    auto arena = backend.allocate_arena(bytes);
    std::byte* const memory = arena.data();
    recorder.check(memory != nullptr || bytes == 0, "an arena must have memory");
    recorder.check(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0, "an arena must begin on a cache line");
    recorder.check(std::all_of(memory, memory + bytes, [](std::byte b) { return b == std::byte{0}; }),
                   "an arena must be zeroed");
    std::fill_n(memory, bytes, std::byte{0x5a});
    auto moved = std::move(arena);
    recorder.check(moved.data() == memory && (bytes == 0 || memory[bytes - 1] == std::byte{0x5a}),
                   "an arena's memory must stay where it is when its owner is moved");
  }
}

/// One rank enters a collective that differs in one thing from the others': nobody may get a result.
template <class Run>
void check_mismatches(Run&& run, int size, conformance_recorder& recorder) {
  for (const mismatch& each : mismatches()) {
    const std::string what = std::to_string(size) + " ranks, one enters another " + std::string(each.what);
    const auto outcomes = run_ranks(run, size, recorder, what, [&](auto& backend) {
      const auto offers = drive(backend, recorder).offers;
      probe_collective mine = backend.rank() == size - 1 ? each.theirs : each.ours;
      return offers.contains(each.ours.operation) && offers.contains(each.theirs.operation)
                 ? attempt(backend, mine.make(size))
                 : collective_outcome{true, {errc::collective_mismatch, -1, -1, -1, {}, "not offered"}};
    });
    bool named = false;
    for (const collective_outcome& outcome : outcomes) {
      recorder.check(outcome.threw, [&] { return what + ": a rank got a result"; });
      named = named || outcome.cause.code == errc::collective_mismatch;
    }
    recorder.check(named, [&] { return what + ": no rank says collective_mismatch"; });
  }
}

/// Waits for `condition` as long as anything in this kit may take.
template <class Condition>
void await(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

inline bool same_cause(const failure& a, const failure& b) {
  return a.code == b.code && a.rank == b.rank && a.step == b.step && a.bucket == b.bucket && a.slots == b.slots &&
         a.detail == b.detail;
}

/// `aborter`, on a thread beside the one that may wait in a collective, gives a cause. Others, or itself, wait in a
/// collective for it; the rest meets it in the next one.
template <class Run>
void check_abort(Run&& run, int size, int aborter, bool aborter_waits, conformance_recorder& recorder) {
  const std::string what = std::to_string(size) + " ranks, rank " + std::to_string(aborter) + " aborts " +
                           (aborter_waits ? "while it waits" : "while the others wait");
  const failure first{errc::aborted, aborter, 5, 2, {"slot"}, "the first cause"};
  common_counter told(run);
  const auto outcomes = run_ranks(run, size, recorder, what, [&](auto& backend) {
    std::thread beside;
    if (backend.rank() == aborter) {
      beside = std::thread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // let the others fall asleep
        recorder.check(same_cause(backend.abort(first), first), what + ": abort() must return its own cause if first");
        recorder.check(same_cause(backend.abort({errc::internal, 99, -1, -1, {}, "too late"}), first),
                       what + ": abort() must return the cause that came first");
        *told = 1;
      });
    }
    if ((backend.rank() == aborter) != aborter_waits) {
      await([&] { return *told != 0; });
    }
    const collective_outcome outcome = attempt(backend, any_collective().make(size));
    if (beside.joinable()) {
      beside.join();
    }
    return outcome;
  });
  for (const collective_outcome& outcome : outcomes) {
    recorder.check(outcome.threw, [&] { return what + ": a rank's present or next collective must throw"; });
    recorder.check(!outcome.threw || same_cause(outcome.cause, first),
                   [&] { return what + ": a rank was told another cause: " + to_string(outcome.cause); });
  }
}

/// The last rank's backend is destroyed while the others are in a collective.
template <class Run>
void check_lost_peer(Run&& run, int size, conformance_recorder& recorder) {
  const std::string what = std::to_string(size) + " ranks, the last one leaves";
  const auto outcomes = run_ranks(run, size, recorder, what, [&](auto& backend) {
    return backend.rank() == size - 1 ? collective_outcome{} : attempt(backend, any_collective().make(size));
  });
  bool named = false;
  for (std::size_t r = 0; r + 1 < outcomes.size(); ++r) {
    recorder.check(outcomes[r].threw, [&] { return what + ": a rank that stays must get an error"; });
    named = named || (outcomes[r].cause.code == errc::peer_lost && outcomes[r].cause.rank == size - 1);
  }
  recorder.check(named, [&] { return what + ": no rank says peer_lost and names it"; });
}

}  // namespace detail

/// Checks a host backend. `run(size, body)` must call `body(backend)` on `size` ranks of one job, each on a thread of
/// this process with its backend by value, and return when all have returned, as backend::run_loopback does. (Or each in a
/// process that goes through the same kit: see runs_processes.) Checks
/// every collective that it offers on all element kinds, several extents, uneven and empty pieces and all roots against
/// a reference; collectives back to back; the count of payload; and that a mismatch, an abort from any thread and a
/// rank that leaves give an error on every rank. A backend that hangs makes it hang: run it under a watchdog.
template <class Run>
conformance_report check_backend(Run&& run, const backend_conformance_options& options = {}) {
  conformance_recorder recorder;
  for (const int size : options.sizes) {
    const std::string here = std::to_string(size) + " ranks: ";
    detail::payload_ledger ledger(size);
    detail::common_counter arrived(run);
    detail::run_ranks(run, size, recorder, here + "collectives", [&](auto& backend) {
      recorder.check(backend.size() == size, here + "size() must be the number of ranks");
      recorder.check(!entries_of(backend).empty() && entries_of(backend).front().key == "name",
                     here + "describe() must begin with the entry 'name'");
      detail::check_arena(backend, recorder);
      const detail::backend_driver driver = detail::drive(backend, recorder);
      detail::check_collectives(driver);
      detail::check_back_to_back(driver, options.seed);
      detail::check_barrier(driver, *arrived);
      detail::measure_payload(driver, ledger);
      return detail::collective_outcome{};
    });
    if constexpr (detail::runs_processes<std::remove_reference_t<Run>>) {
      run.sum(ledger.sent());
    }
    ledger.check(recorder, options.payload_slack);
    if (size > 1) {
      detail::check_mismatches(run, size, recorder);
      detail::check_abort(run, size, size - 1, false, recorder);
      detail::check_lost_peer(run, size, recorder);
    }
    detail::check_abort(run, size, 0, size > 1, recorder);
  }
  return recorder.report();
}

/// Checks that a rank which does not come is named when the deadline passes. `run` as above, with backends that wait
/// for a fraction of a second only.
template <class Run>
conformance_report check_backend_timeout(Run&& run, const std::vector<int>& sizes = {2, 3, 4}) {
  conformance_recorder recorder;
  for (const int size : sizes) {
    const std::string what = std::to_string(size) + " ranks, the last one does not come";
    detail::common_counter gave_up(run);
    const auto outcomes = detail::run_ranks(run, size, recorder, what, [&](auto& backend) {
      if (backend.rank() == size - 1) {
        detail::await([&] { return *gave_up == size - 1; });
      }
      const auto outcome = detail::attempt(backend, detail::any_collective().make(size));
      ++*gave_up;
      return outcome;
    });
    bool named = false;
    for (const detail::collective_outcome& outcome : outcomes) {
      recorder.check(outcome.threw, [&] { return what + ": every rank must get an error"; });
      recorder.check(!outcome.threw || outcome.cause.code == errc::timed_out, [&] {
        return what + ": a rank was told another cause than timed_out: " + to_string(outcome.cause);
      });
      named = named || outcome.cause.rank == size - 1;
    }
    recorder.check(named, [&] { return what + ": no rank names it"; });
  }
  return recorder.report();
}

}  // namespace gradweave::testing
