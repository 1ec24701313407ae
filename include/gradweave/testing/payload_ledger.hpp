/// @file
/// How many bytes a backend's collectives send: the part of the backend kit that counts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/testing/collective_checks.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gradweave::testing::detail {

/// What each collective sent, by all ranks together, against the least that any algorithm sends.
class payload_ledger {
 public:
  /// So many that nobody sends more bytes to save rounds.
  static constexpr std::size_t elements_a_rank = 40'000;

  explicit payload_ledger(int size) : size_(static_cast<std::size_t>(size)) {}

  void add(collective operation, std::uint64_t bytes) {
    std::lock_guard lock(mutex_);
    sent_[static_cast<std::size_t>(operation)] += bytes;
    measured_[static_cast<std::size_t>(operation)] = true;
  }

  /// By operation.
  std::span<std::uint64_t> sent() { return sent_; }

  void check(conformance_recorder& recorder, double slack) const {
    const std::uint64_t whole = size_ * elements_a_rank * sizeof(float);
    for (const collective operation : {collective::all_reduce, collective::reduce_scatter, collective::all_gather,
                                       collective::all_to_all, collective::broadcast}) {
      const auto at = static_cast<std::size_t>(operation);
      const std::uint64_t least = (operation == collective::all_reduce ? 2 : 1) * (size_ - 1) * whole;
      const auto most = static_cast<std::uint64_t>(static_cast<double>(least) * (1 + slack));
      recorder.check(!measured_[at] || (sent_[at] >= least && sent_[at] <= most), [&] {
        return std::to_string(size_) + " ranks: payload_bytes_sent grew by " + std::to_string(sent_[at]) + " in " +
               std::string(to_string(operation)) + ", and should by " + std::to_string(least) + " to " +
               std::to_string(most);
      });
    }
  }

 private:
  std::size_t size_;
  std::mutex mutex_;
  std::array<std::uint64_t, 8> sent_{};
  std::array<bool, 8> measured_{};
};

inline void measure_payload(const backend_driver& driver, payload_ledger& ledger) {
  const auto size = static_cast<std::size_t>(driver.size);
  const std::size_t elements = size * payload_ledger::elements_a_rank;
  scattered_buffer data(element_kind::float32, elements);
  scattered_buffer source(element_kind::float32, elements);
  std::vector<std::size_t> pieces(size + 1);
  for (std::size_t r = 0; r <= size; ++r) {
    pieces[r] = r * payload_ledger::elements_a_rank;
  }
  for (const collective operation : {collective::all_reduce, collective::reduce_scatter, collective::all_gather,
                                     collective::all_to_all, collective::broadcast}) {
    if (driver.offers.contains(operation)) {
      const std::uint64_t before = driver.payload_bytes_sent();
      driver.run({.operation = operation,
                  .kind = element_kind::float32,
                  .data = data.extents(),
                  .pieces = pieces,
                  .source = source.extents(),
                  .source_pieces = pieces});
      ledger.add(operation, driver.payload_bytes_sent() - before);
    }
  }
}

}  // namespace gradweave::testing::detail
