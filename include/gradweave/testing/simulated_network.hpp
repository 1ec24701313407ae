/// @file
/// A network inside one process, in virtual time, with faults. Everything that happens follows from a seed: a run that
/// fails can be repeated exactly. Ranks run their ordinary code over it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/simulated_conditions.hpp>
#include <gradweave/testing/simulated_links.hpp>
#include <gradweave/testing/virtual_time.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_channel.hpp>
#include <gradweave/transport/failure_message.hpp>
#include <gradweave/transport/settlement.hpp>

namespace gradweave::testing {

class simulated_transport;

/// The network of one run, and the ranks' clock.
class simulated_network {
 public:
  simulated_network(virtual_time& time, const simulated_network_options& options)
      : time_(&time),
        options_(options),
        random_(options.seed + 1),
        links_(time, options, [this](int rank) { ring(rank); }) {
    require(options.size > 0, "simulated_network: a job has at least one rank");
    time_->reset(options.seed);
    time_->on_standstill([this] { standstill(); });
    for (int rank = 0; rank < size(); ++rank) {
      ranks_.push_back(std::make_unique<rank_state>(rank, size()));
    }
  }
  simulated_network(const simulated_network&) = delete;
  simulated_network& operator=(const simulated_network&) = delete;

  /// Runs `body(simulated_transport)` for each rank, on threads of which one runs at a time. It must not throw.
  template <class Body>
  void run(Body&& body);

  int size() const { return options_.size; }
  deadline now() const { return time_->now(); }

  /// The calling rank computes for that long, and looks at no message.
  void compute(int rank, std::chrono::microseconds time) {
    enter(rank);
    sleep_until(rank, now() + time);
  }

  /// When the fault happened, if it did.
  const std::optional<deadline>& fault_time() const { return fault_time_; }

  /// Whether the run was ended because it would never have ended.
  bool hung() const { return hung_; }

  /// A number that two runs share only if the same happened in the same order.
  std::uint64_t trace_digest() const { return links_.trace_digest(); }
  /// A line for each thing that happened.
  const std::vector<std::string>& trace() const { return links_.trace(); }

 private:
  friend class simulated_transport;

  struct rank_state {
    rank_state(int rank, int size) : channels(static_cast<std::size_t>(size)), settling(rank, size) {}
    std::vector<control_channel> channels;  // by peer
    settlement settling;
    std::optional<failure> dead;
    bool closed = false;
    std::uint64_t events = 0;
    std::uint64_t events_reported = 0;
    std::uint64_t calls = 0;
    std::uint64_t payload_bytes_sent = 0;
    deadline stalled_until{};
  };

  /// As a control_channel needs it.
  struct control_end {
    simulated_network& network;
    int rank;
    int peer;

    io_result write(std::span<const std::byte> bytes) { return network.write(stream_kind::control, rank, peer, bytes); }
    io_result read(std::span<std::byte> room) { return network.read(stream_kind::control, rank, peer, room); }
  };

  rank_state& at(int rank) { return *ranks_[static_cast<std::size_t>(rank)]; }

  // ---- what ranks call ----------------------------------------------------------------------------------------------

  /// At the begin of each call: a fault may be due, and others may run.
  void enter(int rank) {
    rank_state& self = at(rank);
    ++self.calls;
    if (++calls_ > options_.calls_max || now() - deadline{} > options_.time_max) {
      hang();
    }
    const simulated_fault& fault = options_.fault;
    if (fault.kind != fault_kind::none && fault.rank == rank && self.calls == fault.after_calls && !self.dead) {
      fault_time_ = now();
      inflict(fault);
    }
    if (options_.interruption_odds != 0 && !self.dead && random_.below(options_.interruption_odds) == 0) {
      time_->yield(rank);
    }
    while (self.stalled_until > now() && !self.dead) {
      time_->wait(rank, self.stalled_until);
    }
  }

  void sleep_until(int rank, deadline until) {
    while (now() < until && !at(rank).dead) {
      time_->wait(rank, until);
      enter(rank);
    }
  }

  io_result write(stream_kind kind, int rank, int peer, std::span<const std::byte> bytes) {
    return at(rank).dead ? io_result{0, true} : links_.write(kind, rank, peer, bytes);
  }
  io_result read(stream_kind kind, int rank, int peer, std::span<std::byte> room) {
    return at(rank).dead ? io_result{0, true} : links_.read(kind, peer, rank, room);
  }

  /// Takes in what has come on the control stream from `peer`.
  void pump(int rank, int peer) {
    rank_state& self = at(rank);
    control_channel& channel = self.channels[static_cast<std::size_t>(peer)];
    channel.flush(control_end{*this, rank, peer});
    channel.receive(control_end{*this, rank, peer});
    while (auto cause = channel.take_failure()) {
      self.settling.hear(peer, std::move(*cause), now());
    }
    if (channel.closed()) {
      self.settling.lose(peer);
    }
  }

  void pump_all(int rank) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != rank) {
        pump(rank, peer);
      }
    }
    settle(rank);
  }

  /// Says what there is to say about a failure.
  void settle(int rank) {
    rank_state& self = at(rank);
    while (const auto message = self.settling.next_message(now())) {
      links_.note("tells a failure", rank, message->rank, static_cast<std::size_t>(message->code));
      const auto bytes = encode_failure(*message);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) {
          self.channels[static_cast<std::size_t>(peer)].send(frame_type::failure, bytes,
                                                             control_end{*this, rank, peer});
        }
      }
      ring(rank);
    }
  }

  /// Sleeps until something happens, or that time has come, or a round of settling is over.
  void sleep(int rank, deadline until) {
    time_->wait(rank, std::min(until, at(rank).settling.due().value_or(until)));
    enter(rank);
    pump_all(rank);
  }

  failure abort(int rank, failure cause) {
    rank_state& self = at(rank);
    pump_all(rank);  // a cause that has arrived came first
    self.settling.begin(std::move(cause), now());
    settle(rank);
    while (!self.settling.complete() && !self.dead) {
      sleep(rank, deadline::max());
    }
    return *aborted(rank);
  }

  const failure* aborted(int rank) {
    rank_state& self = at(rank);
    if (self.dead) {
      return &*self.dead;
    }
    return self.settling.complete() ? &self.settling.chosen()
           : self.settling.begun()  ? &self.settling.first()
                                    : nullptr;
  }

  void wait(int rank, std::uint64_t seen, deadline until) {
    rank_state& self = at(rank);
    // As with a socket: what happened since it was last reported ends the sleep at once, even where it has been seen.
    if (self.events == seen && self.events == self.events_reported && now() < until && !self.dead) {
      sleep(rank, until);
    } else {
      enter(rank);
      pump_all(rank);
    }
    self.events_reported = self.events;
  }

  /// Room comes a little later.
  bool refuses_control(int rank) {
    if (options_.refusal_odds == 0 || random_.below(options_.refusal_odds) != 0) {
      return false;
    }
    time_->at(now() + options_.delay_max, [this, rank] { ring(rank); });
    return true;
  }

  bool peer_closed(int rank, int peer) {
    pump(rank, peer);
    const control_channel& channel = at(rank).channels[static_cast<std::size_t>(peer)];
    return channel.closed() && !channel.has_message() && links_.at_end(stream_kind::payload, peer, rank);
  }

  /// The rank's end is destroyed: what it sent still arrives.
  void close(int rank) {
    if (!at(rank).dead && !std::exchange(at(rank).closed, true)) {
      links_.note("closes", rank, rank, 0);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer != rank) {
          links_.end(rank, peer);
        }
      }
    }
  }

  // ---- faults -------------------------------------------------------------------------------------------------------

  void inflict(const simulated_fault& fault) {
    rank_state& self = at(fault.rank);
    switch (fault.kind) {
      case fault_kind::none: break;
      case fault_kind::stall:
        links_.note("stalls", fault.rank, fault.rank, 0);
        self.stalled_until = fault.lasts == std::chrono::milliseconds::max() ? deadline::max() : now() + fault.lasts;
        break;
      case fault_kind::death:
        links_.note("dies", fault.rank, fault.rank, 0);
        for (int peer = 0; peer < size(); ++peer) {
          if (peer != fault.rank) {
            links_.lose_some(fault.rank, peer);
            links_.end(fault.rank, peer);
          }
        }
        kill(fault.rank, "the simulated network has ended this rank");
        break;
      case fault_kind::reset:
        links_.note("is cut off from", fault.rank, fault.other, 0);
        for (const auto& [from, to] : {std::pair(fault.rank, fault.other), std::pair(fault.other, fault.rank)}) {
          links_.lose_all(from, to);
          links_.end(from, to);
        }
        break;
    }
  }

  /// From now on each of the rank's calls fails, so that it comes to its end.
  void kill(int rank, const char* why) {
    if (!at(rank).dead) {
      at(rank).dead = failure{errc::internal, rank, -1, -1, {}, why};
      ring(rank);
    }
  }

  void standstill() {
    bool any_stalled = false;
    for (int rank = 0; rank < size(); ++rank) {
      if (at(rank).stalled_until == deadline::max() && !at(rank).dead) {
        any_stalled = true;
        kill(rank, "the simulated network has stalled this rank for ever");
      }
    }
    if (!any_stalled) {
      hang();
    }
  }

  void hang() {
    hung_ = true;
    for (int rank = 0; rank < size(); ++rank) {
      kill(rank, "the simulated run has no end");
    }
  }

  // ---- time ---------------------------------------------------------------------------------------------------------

  /// Something may have become possible for `rank`.
  void ring(int rank) {
    ++at(rank).events;
    time_->wake(rank);
  }

  virtual_time* time_;
  simulated_network_options options_;
  random_source random_;
  simulated_links links_;
  std::vector<std::unique_ptr<rank_state>> ranks_;
  std::optional<deadline> fault_time_;
  bool hung_ = false;
  std::uint64_t calls_ = 0;
};

/// One rank's end. Destroying it closes it: peers still receive what was sent. The network must outlive it.
class simulated_transport {
 public:
  simulated_transport(simulated_network& network, int rank) : network_(&network), rank_(rank) {}
  simulated_transport(simulated_transport&& other) noexcept
      : network_(std::exchange(other.network_, nullptr)), rank_(other.rank_) {}
  simulated_transport& operator=(simulated_transport&& other) noexcept {
    std::swap(network_, other.network_);
    std::swap(rank_, other.rank_);
    return *this;
  }
  ~simulated_transport() {
    if (network_ != nullptr) {
      network_->close(rank_);
    }
  }

  int rank() const { return rank_; }
  int size() const { return network_->size(); }

  std::size_t try_send(int peer, std::span<const std::byte> bytes) {
    network_->enter(rank_);
    const std::size_t taken = network_->write(stream_kind::payload, rank_, peer, bytes).bytes;
    network_->at(rank_).payload_bytes_sent += taken;
    return taken;
  }
  std::size_t try_receive(int peer, std::span<std::byte> room) {
    network_->enter(rank_);
    return network_->read(stream_kind::payload, rank_, peer, room).bytes;
  }
  bool try_send_control(int peer, const control_message& message) {
    network_->enter(rank_);
    if (network_->refuses_control(rank_)) {
      return false;
    }
    return channel(peer).send(frame_type::message, message, simulated_network::control_end{*network_, rank_, peer});
  }
  bool try_receive_control(int peer, control_message& message) {
    network_->enter(rank_);
    return channel(peer).take(message, simulated_network::control_end{*network_, rank_, peer});
  }
  bool peer_closed(int peer) {
    network_->enter(rank_);
    return network_->peer_closed(rank_, peer);
  }

  failure abort(failure cause) {
    network_->enter(rank_);
    return network_->abort(rank_, std::move(cause));
  }
  const failure* aborted() const { return network_->aborted(rank_); }

  std::uint64_t events() const { return network_->at(rank_).events; }
  void wait(std::uint64_t seen, deadline until) { network_->wait(rank_, seen, until); }
  deadline now() const { return network_->now(); }

  std::uint64_t payload_bytes_sent() const { return network_->at(rank_).payload_bytes_sent; }

 private:
  control_channel& channel(int peer) { return network_->at(rank_).channels[static_cast<std::size_t>(peer)]; }

  simulated_network* network_;
  int rank_;
};

static_assert(byte_transport<simulated_transport>);

template <class Body>
void simulated_network::run(Body&& body) {
  time_->run(size(), [&](int rank) { body(simulated_transport(*this, rank)); });
}

}  // namespace gradweave::testing
