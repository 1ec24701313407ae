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
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/collective/handshake.hpp>
#include <gradweave/collective/lateness.hpp>
#include <gradweave/collective/loans.hpp>
#include <gradweave/collective/local_work.hpp>
#include <gradweave/collective/receive_reduce.hpp>
#include <gradweave/collective/scattered.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/scratch_memory.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave {

template <byte_transport Transport>
class executor {
 public:
  /// `timeout` bounds how long a collective may go without any progress; `piece_bytes` are received and reduced at once.
  executor(Transport transport, std::chrono::milliseconds timeout, std::size_t piece_bytes)
      : transport_(std::move(transport)),
        timeout_(timeout),
        ranks_(static_cast<std::size_t>(transport_.size())),
        channels_(2 * ranks_ + 1),
        handshake_(ranks_),
        receiver_(piece_bytes) {}

  Transport& transport() { return transport_; }
  const Transport& transport() const { return transport_; }

  /// Sent, or read from and written to peers' memory.
  std::uint64_t payload_bytes_sent() const { return transport_.payload_bytes_sent() + bytes_moved_; }
  std::uint64_t collectives_started() const { return sequence_; }

  /// Ends the job on every rank, from any thread. Returns the cause that came first.
  failure abort(failure cause) { return transport_.abort(with_progress(std::move(cause))); }
  /// The same without waiting for the others, where the transport can do that.
  void tell(failure cause) { transport_.tell(with_progress(std::move(cause))); }

  /// Begins a collective. `plan`, and what `request` refers to, must live until poll() has returned true.
  void start(const collective_request& request, const schedule& plan) {
    require(remaining_ == 0, "executor: the collective before is not complete");
    request_ = request;
    plan_ = &plan;
    element_bytes_ = element_bytes(request.kind);
    ++sequence_;
    scratch_extent_ = scratch_.at_least(plan.scratch_elements() * element_bytes_, request.scratch);
    link_channels();
    idle_since_ = transport_.now();
    progressed_ = false;
  }

  /// Does what can be done without blocking. True once the collective is complete. Throws sync_error: the first cause
  /// that any rank gave, a mismatch, or a lost peer.
  bool poll() {
    seen_ = transport_.events();
    throw_if_aborted();
    handshake_.exchange(transport_, remaining_ == 0);
    run_channels();
    if (!is_complete() && find_lost_peer()) {
      run_channels();  // what it did before it went counts
      if (const auto lost = find_lost_peer(); lost && !is_complete()) {
        throw_if_aborted();  // it may have said why it goes
        throw sync_error(loss_of(*lost));
      }
    }
    return is_complete();
  }

  /// Sleeps until poll() may get further. Throws sync_error that names the missing rank once the timeout has passed
  /// without progress.
  void wait() {
    const deadline now = transport_.now();
    idle_since_ = std::exchange(progressed_, false) ? now : idle_since_;
    const deadline until = idle_since_ + (waits_for_opening() ? timeout_ : timeout_ + timeout_ / 2);
    if (now >= until) {
      throw_if_aborted();
      throw sync_error(timeout_failure());
    }
    transport_.wait(seen_, until);
  }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  /// How much is combined before messages are looked after again.
  static constexpr std::size_t combine_bytes = std::size_t{1} << 20;

  /// Steps in order, and how far the first unfinished one has got.
  struct channel_state {
    std::uint32_t head = none;
    std::uint32_t tail = none;
    reduced_so_far done;  // of the head step
  };

  std::size_t local_channel() const { return 2 * ranks_; }

  void link_channels() {
    const auto steps = plan_->steps();
    next_.assign(steps.size(), none);
    done_.assign(steps.size(), 0);
    active_.clear();
    openings_needed_.assign(ranks_, 0);
    handshake_.begin(request_, sequence_);
    loans_.begin();
    for (std::uint32_t i = 0; i < steps.size(); ++i) {
      const std::size_t id = channel_of(steps[i], ranks_);
      channel_state& channel = channels_[id];
      if (channel.head == none) {
        channel = {i, i, {}};
        active_.push_back(id);
      } else {
        next_[channel.tail] = i;
        channel.tail = i;
      }
      if (needs_opening(steps[i])) {
        ++openings_needed_[static_cast<std::size_t>(steps[i].peer)];
      }
      announce(steps[i]);
    }
    remaining_ = steps.size();
  }

  /// What there is to do before a step's turn.
  void announce(const schedule_step& step) {
    handshake_.announce(*plan_, step);
    if (step.kind == step_kind::lend) {
      const bool to_write = step.target.count != 0;
      loans_.lend(transport_, step.peer, range_of(to_write ? step.target : step.source), to_write);
    }
    plan_->for_each_operand(step, [&](const operand& range, bool) {
      bytes_moved_ += range.lender >= 0 ? range.count * element_bytes_ : 0;
    });
  }

  bool is_complete() {
    if (remaining_ != 0 || !handshake_.is_told()) {
      return false;
    }
    completed_.store(sequence_, std::memory_order_relaxed);
    return true;
  }

  // ---- channels -----------------------------------------------------------------------------------------------------

  /// Gets on until nothing moves any more.
  void run_channels() {
    for (bool progress = true; progress;) {
      progress = false;
      for (const std::size_t channel : active_) {
        progress |= advance(channel);
      }
      std::erase_if(active_, [&](std::size_t channel) { return channels_[channel].head == none; });
      progressed_ |= progress;
    }
  }

  /// Gets on with a channel's first unfinished step. True where anything moved.
  bool advance(std::size_t id) {
    channel_state& channel = channels_[id];
    bool moved = false;
    while (channel.head != none && is_ready(channel.head)) {
      const std::size_t before = channel.done.bytes;
      const bool finished = run(id, plan_->steps()[channel.head]);
      moved |= finished || channel.done.bytes != before;
      if (!finished) {
        break;
      }
      const std::uint32_t finished_step = channel.head;
      done_[finished_step] = 1;
      channel.head = next_[finished_step];
      channel.done = {};
      --remaining_;
      settle(plan_->steps()[finished_step]);
    }
    return moved;
  }

  /// Whether it needs the opening of its peer: who only receives does not.
  static bool needs_opening(const schedule_step& step) {
    return step.kind == step_kind::send || step.kind == step_kind::lend || step.kind == step_kind::give_back;
  }

  /// After the last step that needs it an opening is used up.
  void settle(const schedule_step& done) {
    const auto peer = static_cast<std::size_t>(done.peer);
    if (needs_opening(done) && --openings_needed_[peer] == 0) {
      handshake_.settle(peer);
    }
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
      case step_kind::send: return run_send(step);
      case step_kind::receive:
        return receive_rest(transport_, step.peer, range_of(step.target), channels_[id].done.bytes);
      case step_kind::receive_reduce:
        return receiver_.receive_rest(transport_, step.peer, request_.reduce.operation, request_.kind,
                                      range_of(step.target), channels_[id].done);
      case step_kind::copy: return run_copy(step);
      case step_kind::divide: divide_range(request_.kind, range_of(step.target), request_.reduce.divisor); return true;
      case step_kind::reduce: return run_reduce(step);
      case step_kind::lend:
        // The borrower has entered, or this collective would end before its opening is used up.
        return handshake_.is_open(static_cast<std::size_t>(step.peer)) && loans_.have_ended(transport_, step.peer);
      case step_kind::give_back: break;
    }
    return run_give_back(step);
  }

  std::span<const extent> buffer(operand_buffer which) const {
    switch (which) {
      case operand_buffer::data: return request_.data;
      case operand_buffer::source: return request_.source;
      case operand_buffer::scratch: break;
    }
    return {&scratch_extent_, 1};
  }

  buffer_range range_of(const operand& range) {
    const std::size_t begin = range.begin * element_bytes_;
    const std::size_t bytes = range.count * element_bytes_;
    return {range.lender < 0 ? buffer(range.buffer) : loans_.borrowed(transport_, range.lender), begin, bytes};
  }

  bool run_send(const schedule_step& step) {
    const auto peer = static_cast<std::size_t>(step.peer);
    return step.source.count == 0 ||
           (handshake_.is_open(peer) &&
            send_rest(transport_, step.peer, range_of(step.source), channels_[peer].done.bytes));
  }

  bool run_copy(const schedule_step& step) {
    if (!has_borrowed(step)) {
      return false;
    }
    copy_range(range_of(step.source), range_of(step.target));
    return true;
  }

  bool run_reduce(const schedule_step& step) {
    const std::size_t bytes = plan_->targets(step).front().count * element_bytes_;
    std::size_t& done = channels_[local_channel()].done.bytes;
    if (done == 0) {
      if (!has_borrowed(step)) {
        return false;
      }
      combiner_.clear();
      std::ranges::for_each(plan_->sources(step), [&](const operand& range) { combiner_.add_source(range_of(range)); });
      std::ranges::for_each(plan_->targets(step), [&](const operand& range) { combiner_.add_target(range_of(range)); });
    }
    const reduction reduce = {request_.reduce.operation, step.divides ? request_.reduce.divisor : 1};
    done += combiner_.combine_some(reduce, request_.kind, done, combine_bytes);
    return done == bytes;
  }

  bool run_give_back(const schedule_step& step) {
    if (!handshake_.is_open(static_cast<std::size_t>(step.peer))) {
      return false;
    }
    loans_.give_back(transport_, step.peer);
    return true;
  }

  /// Everybody whose memory the step names has lent it.
  bool has_borrowed(const schedule_step& step) const {
    bool all = true;
    plan_->for_each_operand(step, [&](const operand& range, bool) {
      all = all && (range.lender < 0 || handshake_.is_open(static_cast<std::size_t>(range.lender)));
    });
    return all;
  }

  // ---- failures -----------------------------------------------------------------------------------------------------

  failure with_progress(failure cause) const {
    cause.collectives_completed = completed_.load(std::memory_order_relaxed);
    return cause;
  }

  void throw_if_aborted() {
    // What the rank that aborted has completed, all ranks can complete.
    if (const failure* cause = transport_.aborted(); cause != nullptr && cause->collectives_completed < sequence_) {
      throw sync_error(*cause);
    }
  }

  /// A peer that is gone and still needed: also one that entered and has still to take payload, since a sender would
  /// wait for room for ever.
  std::optional<std::size_t> find_lost_peer() {
    for (const std::size_t id : active_) {
      const std::size_t p = id < ranks_ ? id : id - ranks_;
      if (id != local_channel() && transport_.peer_closed(static_cast<int>(p))) {
        return p;
      }
    }
    return std::nullopt;
  }

  failure loss_of(std::size_t peer) const {
    const std::string what = " is gone in the middle of " + to_string(handshake_.own(peer)) + route_to(peer);
    return {errc::peer_lost, static_cast<int>(peer), -1, -1, {}, "rank " + std::to_string(peer) + what};
  }

  /// Whether a peer has not entered this collective. Who waits for that knows the culprit; who only waits for payload
  /// may wait for a rank that waits itself, so it is more patient and lets the other speak first.
  bool waits_for_opening() const {
    return std::any_of(active_.begin(), active_.end(), [&](std::size_t id) { return lacks_opening(id); });
  }
  bool lacks_opening(std::size_t id) const {
    const schedule_step& step = plan_->steps()[channels_[id].head];
    return needs_opening(step) && !handshake_.is_open(static_cast<std::size_t>(step.peer));
  }
  failure timeout_failure() const {
    std::vector<late_rank> late;
    for (const std::size_t id : active_) {
      if (id != local_channel()) {
        const lateness entered = id < ranks_ ? lateness::not_receiving : lateness::not_sending;
        late.push_back({id < ranks_ ? id : id - ranks_, lacks_opening(id) ? lateness::not_entered : entered});
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
  std::vector<std::uint32_t> next_;             // step: the next one of its channel
  std::vector<std::uint8_t> done_;              // step
  std::vector<std::uint32_t> openings_needed_;  // by peer: by how many steps that are not done
  reducing_receiver receiver_;
  scratch_memory scratch_;
  extent scratch_extent_;
  range_combiner combiner_;  // of the reduce that is under way: one at most, in the local channel
  loans<Transport> loans_;
  std::uint64_t bytes_moved_ = 0;
  std::uint64_t seen_ = 0;
  deadline idle_since_{};
  bool progressed_ = false;
};

}  // namespace gradweave
