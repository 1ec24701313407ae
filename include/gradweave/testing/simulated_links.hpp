/// @file
/// The connections of a simulated network: two streams for each ordered pair of ranks, whose bytes take a random time
/// and keep their order. It knows no rank's code, only whom to wake.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/simulated_conditions.hpp>
#include <gradweave/testing/simulated_stream.hpp>
#include <gradweave/testing/virtual_time.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_channel.hpp>

namespace gradweave::testing {

enum class stream_kind : std::uint8_t { payload, control };

class simulated_links {
 public:
  /// `ring(rank)` is called whenever something may have become possible for that rank.
  simulated_links(virtual_time& time, const simulated_network_options& options, std::function<void(int)> ring)
      : time_(&time), options_(options), ring_(std::move(ring)), random_(options.seed) {
    const auto size = static_cast<std::size_t>(options.size);
    streams_[0].assign(size * size, detail::simulated_stream(options.room_bytes));
    streams_[1].assign(size * size, detail::simulated_stream(control_room_bytes));
  }
  simulated_links(const simulated_links&) = delete;
  simulated_links& operator=(const simulated_links&) = delete;

  io_result write(stream_kind kind, int from, int to, std::span<const std::byte> bytes) {
    detail::simulated_stream& stream = at(kind, from, to);
    const std::size_t taken = stream.write(bytes.first(std::min(bytes.size(), piece())));
    if (taken != 0) {
      note("sends", kind, from, to, taken);
      deliver(stream, to, [this, &stream, kind, from, to, upto = stream.sent()] {
        note("is given", kind, to, from, stream.arrive(upto));
      });
    }
    return {taken, false};
  }

  io_result read(stream_kind kind, int from, int to, std::span<std::byte> room) {
    detail::simulated_stream& stream = at(kind, from, to);
    const std::size_t count = stream.read(room.first(std::min(room.size(), piece())));
    if (count != 0) {
      note("takes", kind, to, from, count);
      ring_(from);
    }
    return {count, count == 0 && stream.at_end()};
  }

  /// Everything that came is read, and nothing more comes.
  bool at_end(stream_kind kind, int from, int to) { return at(kind, from, to).at_end(); }

  /// `from` sends nothing more to `to`, which sees that behind everything that was sent.
  void end(int from, int to) {
    for (const stream_kind kind : {stream_kind::payload, stream_kind::control}) {
      detail::simulated_stream& stream = at(kind, from, to);
      stream.close();
      deliver(stream, to, [this, &stream, kind, from, to] {
        stream.arrive_end();
        note("sees the end", kind, to, from, 0);
      });
    }
  }

  /// Of what is on its way a random part is lost: all, nothing, or the end of it.
  void lose_some(int from, int to) {
    for (const stream_kind kind : {stream_kind::payload, stream_kind::control}) {
      detail::simulated_stream& stream = at(kind, from, to);
      const std::size_t on_its_way = stream.sent() - stream.arrived();
      const std::size_t which = random_.below(3);
      stream.cut(which == 0 ? 0 : which == 1 ? on_its_way : random_.below(on_its_way + 1));
    }
  }

  /// What is on its way is lost.
  void lose_all(int from, int to) {
    at(stream_kind::payload, from, to).cut(0);
    at(stream_kind::control, from, to).cut(0);
  }

  /// Adds to the trace that `rank` does `what`.
  void note(const char* what, int rank, int other, std::size_t amount) {
    note(what, stream_kind::payload, rank, other, amount);
  }

  std::uint64_t trace_digest() const { return digest_; }
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  static constexpr std::size_t control_room_bytes = std::size_t{64} << 10;

  detail::simulated_stream& at(stream_kind kind, int from, int to) {
    return streams_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(from * options_.size + to)];
  }

  std::size_t piece() {
    return options_.piece_bytes_max == SIZE_MAX ? SIZE_MAX : 1 + random_.below(options_.piece_bytes_max);
  }

  void deliver(detail::simulated_stream& stream, int to, std::function<void()> arrival) {
    using std::chrono::microseconds;
    // In a few steps only: ranks that wake at one time take fewer turns.
    constexpr int delay_steps = 3;
    microseconds delay = options_.delay_max * static_cast<int>(random_.below(delay_steps + 1)) / delay_steps;
    if (options_.hold_up_max.count() != 0 && random_.below(16) == 0) {
      delay += microseconds{random_.below(static_cast<std::size_t>(options_.hold_up_max.count()) + 1)};
    }
    time_->at(stream.arrival_after(time_->now() + delay), [this, to, arrival = std::move(arrival)] {
      arrival();
      ring_(to);
    });
  }

  void note(const char* what, stream_kind kind, int rank, int other, std::size_t amount) {
    const std::int64_t ns = (time_->now() - deadline{}).count();
    for (const std::uint64_t part :
         {static_cast<std::uint64_t>(ns), static_cast<std::uint64_t>(what[0]) * 256 + std::strlen(what),
          static_cast<std::uint64_t>(kind), static_cast<std::uint64_t>(rank * 256 + other),
          static_cast<std::uint64_t>(amount)}) {
      digest_ = (digest_ ^ part) * 0x100000001b3U;
      digest_ ^= digest_ >> 29;
    }
    if (options_.keeps_trace) {
      std::array<char, 160> line{};
      std::snprintf(line.data(), line.size(), "%12.3f us  rank %d %s%s, rank %d, %zu", static_cast<double>(ns) / 1000,
                    rank, what, kind == stream_kind::control ? " (control)" : "", other, amount);
      trace_.emplace_back(line.data());
    }
  }

  virtual_time* time_;
  simulated_network_options options_;
  std::function<void(int)> ring_;
  random_source random_;
  std::array<std::vector<detail::simulated_stream>, 2> streams_;  // by kind, then from * size + to
  std::uint64_t digest_ = 0xcbf29ce484222325U;
  std::vector<std::string> trace_;
};

}  // namespace gradweave::testing
