/// @file
/// The executor: runs one rank's schedule over a transport, as a state machine that never blocks by itself. It knows
/// steps and channels, and no algorithm. It receives and reduces in cache-sized pieces and allocates nothing once its
/// vectors have grown.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/handshake.hpp>
#include <gradweave/collective/lateness.hpp>
#include <gradweave/collective/scattered.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

template <byte_transport Transport>
class executor {
 public:
  /// `timeout` bounds how long a collective may go without any progress.
  executor(Transport transport, std::chrono::milliseconds timeout)
      : transport_(std::move(transport)),
        timeout_(timeout),
        ranks_(static_cast<std::size_t>(transport_.size())),
        channels_(2 * ranks_ + 1),
        handshake_(ranks_),
        staging_(staging_bytes) {}

  Transport& transport() { return transport_; }
  const Transport& transport() const { return transport_; }

  /// Ends the job on every rank, from any thread. Returns the cause that came first.
  failure abort(failure cause) {
    cause.collectives_completed = completed_.load(std::memory_order_relaxed);
    return transport_.abort(std::move(cause));
  }

  /// Begins a collective. `plan`, and what `request` refers to, must live until poll() has returned true.
  void start(const collective_request& request, const schedule& plan) {
    require(remaining_ == 0, "executor: the collective before is not complete");
    request_ = request;
    plan_ = &plan;
    element_bytes_ = element_bytes(request.kind);
    ++sequence_;
    link_channels();
    if (const std::size_t needed = plan.scratch_elements() * element_bytes_; scratch_.size() < needed) {
      scratch_.resize(needed);
    }
    scratch_extent_ = {scratch_.data(), scratch_.size(), 0};
    idle_since_ = transport_.now();
    progressed_ = false;
  }

  /// Does what can be done without blocking. True once the collective is complete. Throws sync_error: the first cause
  /// that any rank gave, a mismatch, or a lost peer.
  bool poll() {
    seen_ = transport_.events();
    throw_if_aborted();
    handshake_.exchange(transport_, remaining_ == 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (const std::size_t channel : active_) {
        progress |= advance(channel);
      }
      std::erase_if(active_, [&](std::size_t channel) { return channels_[channel].head == none; });
      progressed_ |= progress;
    }
    if (remaining_ == 0 && handshake_.is_told()) {
      completed_.store(sequence_, std::memory_order_relaxed);
      return true;
    }
    check_for_lost_peers();
    return false;
  }

  /// Sleeps until poll() may get further. Throws sync_error that names the missing rank once the timeout has passed
  /// without progress.
  void wait() {
    const deadline now = transport_.now();
    if (progressed_) {
      idle_since_ = now;
      progressed_ = false;
    }
    const deadline until = idle_since_ + (waits_for_opening() ? timeout_ : patience());
    if (now >= until) {
      throw_if_aborted();
      throw sync_error(timeout_failure());
    }
    transport_.wait(seen_, until);
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  static constexpr std::size_t staging_bytes = std::size_t{64} << 10;

  /// Steps in order, and how far the first unfinished one has got.
  struct channel_state {
    std::uint32_t head = none;
    std::uint32_t tail = none;
    std::size_t bytes_done = 0;          // of the head step
    std::array<std::byte, 8> partial{};  // of an element that has not arrived whole
    std::size_t partial_bytes = 0;
  };

  std::size_t receive_channel(std::size_t peer) const { return ranks_ + peer; }
  std::size_t local_channel() const { return 2 * ranks_; }

  std::size_t channel_of(const schedule_step& step) const {
    switch (step.kind) {
      case step_kind::send: return static_cast<std::size_t>(step.peer);
      case step_kind::receive:
      case step_kind::receive_reduce: return receive_channel(static_cast<std::size_t>(step.peer));
      case step_kind::copy:
      case step_kind::divide: break;
    }
    return local_channel();
  }

  void link_channels() {
    const auto steps = plan_->steps();
    next_.assign(steps.size(), none);
    done_.assign(steps.size(), 0);
    active_.clear();
    handshake_.begin(request_, sequence_);
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const std::size_t id = channel_of(steps[i]);
      channel_state& channel = channels_[id];
      if (channel.head == none) {
        channel = {i, i, 0, {}, 0};
        active_.push_back(id);
      } else {
        next_[channel.tail] = i;
        channel.tail = i;
      }
      if (id < ranks_) {
        handshake_.owe(id, steps[i].source.count);
      } else if (id < local_channel()) {
        handshake_.expect(id - ranks_, steps[i].target.count);
      }
    }
    remaining_ = steps.size();
  }

  // ---- channels -----------------------------------------------------------------------------------------------------

  /// Gets on with a channel's first unfinished step. True where anything moved.
  bool advance(std::size_t id) {
    channel_state& channel = channels_[id];
    bool moved = false;
    while (channel.head != none && is_ready(channel.head)) {
      const std::size_t before = channel.bytes_done;
      const bool finished = run(id, plan_->steps()[channel.head]);
      moved |= finished || channel.bytes_done != before;
      if (!finished) {
        break;
      }
      done_[channel.head] = 1;
      channel.head = next_[channel.head];
      channel.bytes_done = 0;
      --remaining_;
      if (channel.head == none && id < ranks_) {
        handshake_.settle(id);
      }
    }
    return moved;
  }

  bool is_ready(std::uint32_t step) const {
    for (const std::uint32_t needed : plan_->dependencies(plan_->steps()[step])) {
      if (done_[needed] == 0) {
        return false;
      }
    }
    return true;
  }

  bool run(std::size_t id, const schedule_step& step) {
    switch (step.kind) {
      case step_kind::send: return run_send(id, step);
      case step_kind::receive: return run_receive(id, step);
      case step_kind::receive_reduce: return run_receive_reduce(id, step);
      case step_kind::copy: return run_copy(step);
      case step_kind::divide: break;
    }
    return run_divide(step);
  }

  std::span<const extent> buffer(operand_buffer which) const {
    switch (which) {
      case operand_buffer::data: return request_.data;
      case operand_buffer::source: return request_.source;
      case operand_buffer::scratch: break;
    }
    return {&scratch_extent_, 1};
  }

  bool run_send(std::size_t peer, const schedule_step& step) {
    const std::size_t bytes = step.source.count * element_bytes_;
    if (bytes == 0) {
      return true;
    }
    if (!handshake_.is_open(peer)) {
      return false;
    }
    std::size_t& sent = channels_[peer].bytes_done;
    while (sent != bytes) {
      const std::size_t taken = send_some(transport_, static_cast<int>(peer), buffer(step.source.buffer),
                                          step.source.begin * element_bytes_ + sent, bytes - sent);
      if (taken == 0) {
        return false;
      }
      sent += taken;
    }
    return true;
  }

  bool run_receive(std::size_t id, const schedule_step& step) {
    const std::size_t bytes = step.target.count * element_bytes_;
    std::size_t& received = channels_[id].bytes_done;
    while (received != bytes) {
      const std::size_t arrived = receive_some(transport_, step.peer, buffer(step.target.buffer),
                                               step.target.begin * element_bytes_ + received, bytes - received);
      if (arrived == 0) {
        return false;
      }
      received += arrived;
    }
    return true;
  }

  /// Receives into the staging memory and reduces from there while it is in cache.
  bool run_receive_reduce(std::size_t id, const schedule_step& step) {
    const std::size_t bytes = step.target.count * element_bytes_;
    channel_state& channel = channels_[id];
    while (channel.bytes_done != bytes) {
      const std::size_t held = channel.partial_bytes;
      std::memcpy(staging_.data(), channel.partial.data(), held);
      const std::size_t room = std::min(staging_bytes, bytes - channel.bytes_done) - held;
      const std::size_t arrived = transport_.try_receive(step.peer, {staging_.data() + held, room});
      if (arrived == 0) {
        return false;
      }
      const std::size_t available = held + arrived;
      const std::size_t whole = available / element_bytes_ * element_bytes_;
      std::size_t reduced = 0;
      for_each_piece(buffer(step.target.buffer), step.target.begin * element_bytes_ + channel.bytes_done, whole,
                     [&](std::byte* memory, std::size_t count) {
                       reduce_into(request_.reduce.operation, request_.kind, memory, staging_.data() + reduced,
                                   count / element_bytes_);
                       reduced += count;
                     });
      channel.bytes_done += whole;
      channel.partial_bytes = available - whole;
      std::memcpy(channel.partial.data(), staging_.data() + whole, channel.partial_bytes);
    }
    return true;
  }

  bool run_copy(const schedule_step& step) {
    const std::size_t bytes = step.source.count * element_bytes_;
    for (std::size_t copied = 0; copied != bytes;) {
      const auto from =
          first_piece(buffer(step.source.buffer), step.source.begin * element_bytes_ + copied, bytes - copied);
      const auto to = first_piece(buffer(step.target.buffer), step.target.begin * element_bytes_ + copied, from.size());
      std::memcpy(to.data(), from.data(), to.size());
      copied += to.size();
    }
    return true;
  }

  bool run_divide(const schedule_step& step) {
    if (request_.reduce.divisor != 1) {
      for_each_piece(buffer(step.target.buffer), step.target.begin * element_bytes_, step.target.count * element_bytes_,
                     [&](std::byte* memory, std::size_t bytes) {
                       divide(request_.kind, memory, bytes / element_bytes_, request_.reduce.divisor);
                     });
    }
    return true;
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  void throw_if_aborted() {
    // What the rank that aborted has completed, all ranks can complete.
    if (const failure* cause = transport_.aborted(); cause != nullptr && cause->collectives_completed < sequence_) {
      throw sync_error(*cause);
    }
  }

  void check_for_lost_peers() {
    for (const std::size_t id : active_) {
      const std::size_t p = id < ranks_ ? id : id - ranks_;
      // Also a peer that entered and has still to take payload: a sender would wait for room for ever.
      if (id != local_channel() && transport_.peer_closed(static_cast<int>(p))) {
        throw_if_aborted();  // it may have said why it goes
        throw sync_error(
            {errc::peer_lost,
             static_cast<int>(p),
             -1,
             -1,
             {},
             "rank " + std::to_string(p) + " is gone in the middle of " + to_string(handshake_.own(p)) + route_to(p)});
      }
    }
  }

  /// Whether a peer has not entered this collective. Who waits for that knows the culprit; who only waits for payload
  /// may wait for a rank that waits itself, so it is more patient and lets the other speak first.
  bool waits_for_opening() const {
    return std::any_of(active_.begin(), active_.end(),
                       [&](std::size_t id) { return id < ranks_ && !handshake_.is_open(id); });
  }
  std::chrono::milliseconds patience() const { return timeout_ + timeout_ / 2; }

  failure timeout_failure() const {
    std::vector<late_rank> late;
    for (const std::size_t id : active_) {
      if (id < ranks_) {
        late.push_back({id, handshake_.is_open(id) ? lateness::not_receiving : lateness::not_entered});
      } else if (id != local_channel()) {
        late.push_back({id - ranks_, lateness::not_sending});
      }
    }
    failure cause = blame(late, to_string(handshake_.own(0)) + " within " + std::to_string(timeout_.count()) +
                                    " ms, as rank " + std::to_string(transport_.rank()) + " saw it");
    if (cause.rank >= 0) {
      const auto culprit = static_cast<std::size_t>(cause.rank);
      if (const auto last = handshake_.last_entered(culprit)) {
        cause.detail += "; the last that rank " + std::to_string(culprit) + " entered was " + to_string(*last);
      }
      cause.detail += route_to(culprit);
    }
    return cause;
  }

  /// Over which connection, where the transport says that.
  std::string route_to(std::size_t peer) const {
    if constexpr (requires { transport_.route(0); }) {
      return " (" + transport_.route(static_cast<int>(peer)) + ")";
    }
    return "";
  }

  Transport transport_;
  std::chrono::milliseconds timeout_;
  std::size_t ranks_;
  collective_request request_;
  const schedule* plan_ = nullptr;
  std::size_t element_bytes_ = 1;
  std::uint64_t sequence_ = 0;
  std::atomic<std::uint64_t> completed_{0};  // read by abort
  std::size_t remaining_ = 0;
  std::vector<channel_state> channels_;  // to each peer, from each peer, local
  std::vector<std::size_t> active_;      // channels with unfinished steps
  handshake handshake_;
  std::vector<std::uint32_t> next_;  // step: the next one of its channel
  std::vector<std::uint8_t> done_;   // step
  std::vector<std::byte> staging_;
  std::vector<std::byte> scratch_;
  extent scratch_extent_;
  std::uint64_t seen_ = 0;
  deadline idle_since_{};
  bool progressed_ = false;
};

}  // namespace gradweave
