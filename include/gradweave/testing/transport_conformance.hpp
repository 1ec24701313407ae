/// @file
/// The conformance kit of transports. docs/reference/transport.md has what it checks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <gradweave/error.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::testing {

struct transport_conformance_options {
  std::vector<int> sizes = {2, 3, 4};
  std::size_t message_bytes = std::size_t{3} << 20;               ///< more than any buffer on the way holds
  std::chrono::milliseconds patience = std::chrono::seconds(10);  ///< for what has to come
  std::uint64_t seed = 1;
};

namespace detail {

inline std::byte pattern_byte(int from, int to, std::size_t position) {
  return static_cast<std::byte>(
      (position * 131 + position / 251 + static_cast<std::size_t>(from) * 17 + static_cast<std::size_t>(to) * 29) %
      256);
}

/// Runs `body(0)` to `body(count - 1)` at once, each on a thread.
struct on_threads {
  template <class Body>
  void operator()(int count, Body&& body) const {
    std::vector<std::thread> threads;
    for (int i = 0; i < count; ++i) {
      threads.emplace_back([&body, i] { body(i); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
  }
};

/// The ends of one network under examination.
template <byte_transport Transport, class RunAtOnce>
class transport_examination {
 public:
  transport_examination(std::vector<Transport> ends, RunAtOnce& run_at_once,
                        const transport_conformance_options& options, conformance_recorder& recorder)
      : ends_(std::move(ends)), run_at_once_(run_at_once), options_(options), recorder_(recorder) {}

  void identities() {
    for (std::size_t r = 0; r < ends_.size(); ++r) {
      recorder_.check(ends_[r].rank() == static_cast<int>(r) && ends_[r].size() == static_cast<int>(ends_.size()),
                      "end r must have rank r and the number of ends as its size");
      recorder_.check(ends_[r].payload_bytes_sent() == 0, "nothing was sent yet, but payload_bytes_sent() is not 0");
    }
  }

  /// All pairs at once, both ways, in pieces of random length.
  void streams() {
    run_at_once_(static_cast<int>(ends_.size()),
                 [&](int r) { recorder_.part("streams", [&] { exchange(ends_[static_cast<std::size_t>(r)]); }); });
  }

  void controls() {
    Transport& from = ends_.front();
    Transport& to = ends_.back();
    const int sender = from.rank();
    const int receiver = to.rank();
    control_message in{};
    recorder_.check(!to.try_receive_control(sender, in), "a control message was received that nobody sent");
    const std::uint64_t payload_before = from.payload_bytes_sent();
    std::size_t received = 0;
    for (std::size_t sent = 0; sent < 3 * controls_in_a_row;) {
      // All that was sent is received, so there has to be room for one more at least.
      if (!await(from, [&] { return from.try_send_control(receiver, numbered(sent)); }, "room for a control message")) {
        return;
      }
      ++sent;
      for (std::size_t more = 1; more < controls_in_a_row && from.try_send_control(receiver, numbered(sent)); ++more) {
        ++sent;
      }
      while (received < sent) {
        if (!await(to, [&] { return to.try_receive_control(sender, in); }, "a control message that was sent")) {
          return;
        }
        recorder_.check(in == numbered(received), "control messages must arrive whole and in order");
        ++received;
      }
    }
    recorder_.check(from.payload_bytes_sent() == payload_before, "control messages must not count as payload");
  }

  /// What was sent before the end closed is still received, and only then the peer is seen as closed.
  void close() {
    const int leaver = ends_.back().rank();
    Transport& to = ends_.front();
    const std::vector<std::byte> last_words = pattern(leaver, to.rank(), 1000);
    recorder_.check(!to.peer_closed(leaver), "a peer that is still there is seen as closed");
    Transport& from = ends_.back();
    if (!send_all(from, to.rank(), last_words) ||
        !await(from, [&] { return from.try_send_control(to.rank(), numbered(0)); }, "room for a control message")) {
      return;
    }
    ends_.pop_back();
    std::vector<std::byte> heard(last_words.size());
    for (std::size_t i = 0; i < heard.size(); ++i) {
      recorder_.check(!to.peer_closed(leaver), "a peer is seen as closed while bytes of its are not received");
      if (!receive_byte(to, leaver, heard[i])) {
        return;
      }
    }
    recorder_.check(heard == last_words, "the last bytes before a close must arrive as they were sent");
    recorder_.check(!to.peer_closed(leaver), "a peer is seen as closed while a control message of its is not received");
    control_message in{};
    await(to, [&] { return to.try_receive_control(leaver, in); }, "a control message that was sent before a close");
    await(to, [&] { return to.peer_closed(leaver); }, "the close of a peer");
  }

  /// Two ends give a cause at once: all keep the same one, and tell it.
  void aborts() {
    for (Transport& end : ends_) {
      recorder_.check(end.aborted() == nullptr, "aborted() must be null as long as nobody aborted");
    }
    std::vector<failure> returned(ends_.size());
    run_at_once_(static_cast<int>(ends_.size()), [&](int rank) {
      const auto r = static_cast<std::size_t>(rank);
      returned[r] = ends_[r].abort({errc::aborted, rank, 7, 3, {"slot"}, "told by one rank"});
    });
    const failure again = ends_.front().abort({errc::internal, 99, -1, -1, {}, "too late"});
    recorder_.check(again.rank == returned.front().rank,
                    "abort() must return the cause that came first, at every call");
    for (std::size_t r = 0; r < ends_.size(); ++r) {
      recorder_.check(returned[r].rank == returned.front().rank,
                      "abort() must return one and the same cause on all ranks");
      if (await(ends_[r], [&] { return ends_[r].aborted() != nullptr; }, "word of an abort")) {
        const failure& told = *ends_[r].aborted();
        recorder_.check(told.rank == returned.front().rank,
                        "aborted() must give the cause that came first on all ranks");
        recorder_.check(told.code == errc::aborted && told.step == 7 && told.bucket == 3 &&
                            told.slots == std::vector<std::string>{"slot"} && told.detail == "told by one rank",
                        "a cause must arrive whole: code, step, bucket, slots and detail");
      }
    }
  }

  void waits() {
    using namespace std::chrono_literals;
    Transport& from = ends_.front();
    Transport& to = ends_.back();
    const auto began = to.now();
    while (to.now() - began < 50ms) {
      const std::uint64_t seen = to.events();
      to.wait(seen, began + 50ms);
      if (to.events() == seen && to.now() < began + 45ms) {
        recorder_.fail("wait() returned although nothing had happened and the deadline had not come");
        break;
      }
    }
    recorder_.check(to.now() - began < options_.patience, "wait() did not return at its deadline");
    to.wait(to.events(), to.now() - 1s);
    // An event between the look at events() and wait() must not be slept through.
    const std::uint64_t before = to.events();
    const std::byte one{1};
    send_all(from, to.rank(), {&one, 1});
    wakes(to, before, "a byte that had already arrived");
    std::byte in{};
    receive_byte(to, from.rank(), in);
    const std::uint64_t seen = to.events();
    const int last = static_cast<int>(ends_.size()) - 1;
    run_at_once_(last + 1, [&](int which) {
      if (which == 0) {
        for (const deadline later = from.now() + 20ms; from.now() < later;) {
          from.wait(from.events(), later);
        }
        from.abort({errc::aborted, from.rank(), -1, -1, {}, "from another thread"});
      } else if (which == last) {
        wakes(to, seen, "an abort");
      }
    });
    recorder_.check(to.aborted() != nullptr || await(
                                                   to, [&] { return to.aborted() != nullptr; }, "word of an abort"),
                    "an abort must be seen");
  }

 private:
  static constexpr std::size_t controls_in_a_row = 6;

  static control_message numbered(std::size_t number) {
    control_message made;
    for (std::size_t i = 0; i < made.size(); ++i) {
      made[i] = pattern_byte(static_cast<int>(number), 1, i);
    }
    return made;
  }

  static std::vector<std::byte> pattern(int from, int to, std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
      made[i] = pattern_byte(from, to, i);
    }
    return made;
  }

  /// Calls `attempt` until it is true; false, and a failure, where that takes longer than the patience.
  template <class Attempt>
  bool await(Transport& end, Attempt&& attempt, const char* what) {
    const deadline until = end.now() + options_.patience;
    for (;;) {
      const std::uint64_t seen = end.events();
      if (attempt()) {
        return recorder_.check(true, what);
      }
      if (end.now() >= until) {
        return recorder_.check(false, [&] { return std::string(what) + " did not come; was an event not counted?"; });
      }
      end.wait(seen, until);
    }
  }

  bool send_all(Transport& end, int peer, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      std::size_t taken = 0;
      if (!await(
              end, [&] { return (taken = end.try_send(peer, bytes)) != 0; }, "room for bytes") ||
          !recorder_.check(taken <= bytes.size(), "try_send took more than was offered")) {
        return false;
      }
      bytes = bytes.subspan(taken);
    }
    return true;
  }

  bool receive_byte(Transport& end, int peer, std::byte& byte) {
    return await(end, [&] { return end.try_receive(peer, {&byte, 1}) == 1; }, "a byte that was sent");
  }

  void wakes(Transport& end, std::uint64_t seen, const char* what) {
    const auto began = end.now();
    end.wait(seen, began + options_.patience);
    recorder_.check(end.now() - began < options_.patience / 2,
                    [&] { return "wait() slept through " + std::string(what); });
  }

  struct stream {
    int peer = 0;
    std::size_t sent = 0;
    std::size_t received = 0;
    bool right = true;
  };

  void exchange(Transport& end) {
    random_source random(options_.seed + static_cast<std::uint64_t>(end.rank()));
    std::vector<stream> streams;
    std::vector<std::vector<std::byte>> messages;
    for (int peer = 0; peer < end.size(); ++peer) {
      if (peer != end.rank()) {
        streams.push_back({peer});
        messages.push_back(pattern(end.rank(), peer, options_.message_bytes));
      }
    }
    std::vector<std::byte> room(std::size_t{100} << 10);
    await(
        end,
        [&] {
          bool all = true;
          for (bool moved = true; moved;) {
            moved = false;
            all = true;
            for (std::size_t i = 0; i < streams.size(); ++i) {
              moved |= move(end, streams[i], messages[i], room, random);
              all = all && streams[i].sent == options_.message_bytes && streams[i].received == options_.message_bytes;
            }
          }
          return all;
        },
        "the end of a long message");
    for (const stream& each : streams) {
      recorder_.check(each.right, "bytes must arrive in order, each once");
    }
    recorder_.check(end.payload_bytes_sent() == options_.message_bytes * streams.size(),
                    "payload_bytes_sent() must be what try_send took");
  }

  /// Sends and receives what goes without waiting; whether anything moved.
  bool move(Transport& end, stream& each, std::span<const std::byte> message, std::span<std::byte> room,
            random_source& random) {
    const std::size_t offered = std::min(message.size() - each.sent, 1 + random.below(room.size()));
    const std::size_t taken = offered == 0 ? 0 : end.try_send(each.peer, message.subspan(each.sent, offered));
    if (!recorder_.check(taken <= offered, "try_send took more than was offered")) {
      return false;
    }
    each.sent += taken;
    const std::size_t wanted = std::min(message.size() - each.received, 1 + random.below(room.size()));
    const std::size_t arrived = wanted == 0 ? 0 : end.try_receive(each.peer, room.first(wanted));
    if (!recorder_.check(arrived <= wanted, "try_receive gave more than there was room for")) {
      return false;
    }
    for (std::size_t i = 0; i < arrived; ++i) {
      each.right = each.right && room[i] == pattern_byte(each.peer, end.rank(), each.received + i);
    }
    each.received += arrived;
    return taken + arrived != 0;
  }

  std::vector<Transport> ends_;
  RunAtOnce& run_at_once_;
  const transport_conformance_options& options_;
  conformance_recorder& recorder_;
};

}  // namespace detail

/// Checks the networks that `connect(size)` returns as a vector of their ends, rank 0's first: bytes in order both ways
/// in messages larger than any buffer, control messages, a close that is seen after the last byte and no earlier, the
/// first cause of an abort, and that `wait` returns on an event and at its deadline.
/// `run_at_once(count, body)` runs `body(0)` to `body(count - 1)` side by side: on threads, if nothing else is said.
template <std::invocable<int> Connect, class RunAtOnce = detail::on_threads>
  requires byte_transport<typename std::invoke_result_t<Connect&, int>::value_type>
conformance_report check_transport(Connect&& connect, const transport_conformance_options& options = {},
                                   RunAtOnce run_at_once = {}) {
  using examination =
      detail::transport_examination<typename std::invoke_result_t<Connect&, int>::value_type, RunAtOnce>;
  conformance_recorder recorder;
  for (const int size : options.sizes) {
    const std::string here = std::to_string(size) + " ranks: ";
    const auto each = [&](const char* what, void (examination::*part)()) {
      recorder.part(here + what, [&] {
        examination fresh(connect(size), run_at_once, options, recorder);
        (fresh.*part)();
      });
    };
    each("rank and size", &examination::identities);
    if (!recorder.report().passed()) {
      continue;  // an end that does not know its rank can be asked no more, and a failure shows in small networks first
    }
    each("streams", &examination::streams);
    each("control messages", &examination::controls);
    each("close", &examination::close);
    each("abort", &examination::aborts);
    each("wait", &examination::waits);
  }
  return recorder.report();
}

}  // namespace gradweave::testing
