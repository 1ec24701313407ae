/// @file
/// The TCP transport, over Boost.Asio's sockets: two connections to each peer. One carries payload, bare, straight from
/// and to the arena; the other carries control messages and failures, so that these are never stuck behind payload.
/// There is no thread: whoever waits drives it.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>

#include <gradweave/description.hpp>
#include <gradweave/error.hpp>
#include <gradweave/transport/asio_group.hpp>
#include <gradweave/transport/asio_link.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_channel.hpp>
#include <gradweave/transport/control_frames.hpp>
#include <gradweave/transport/failure_message.hpp>
#include <gradweave/transport/readiness.hpp>
#include <gradweave/transport/settlement.hpp>
#include <gradweave/transport/spinning.hpp>
#include <gradweave/transport/stream.hpp>

namespace gradweave {

namespace detail {

/// What may be shared with a thread that aborts. Payload belongs to the lane alone; control to whoever holds the mutex.
template <byte_stream Stream>
class asio_mesh {
 public:
  using link_type = asio_link<Stream>;

  /// `links[r]` leads to rank r; the own one is empty.
  asio_mesh(std::unique_ptr<boost::asio::io_context> context, int rank, std::vector<std::optional<link_type>> links)
      : context_(std::move(context)),
        rank_(rank),
        doorbell_(checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")),
        readiness_(2 * links.size()),
        settling_(rank, static_cast<int>(links.size())) {
    for (auto& link : links) {
      peers_.emplace_back(std::move(link));
    }
    readiness_.watch_bell(doorbell_);
    for (int p = 0; p < size(); ++p) {
      if (at(p).link) {
        readiness_.watch(at(p).link->payload.native_handle(), payload_of(p));
        readiness_.watch(at(p).link->control.native_handle(), control_of(p));
      }
    }
    wait(rung_, std::chrono::steady_clock::now());  // that there is room for the first bytes is no event
  }
  asio_mesh(const asio_mesh&) = delete;
  asio_mesh& operator=(const asio_mesh&) = delete;

  ~asio_mesh() {
    for (peer& each : peers_) {
      if (each.link) {
        each.link->control.shut_down();
        each.link->payload.shut_down();
      }
    }
    ::close(doorbell_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  std::size_t try_send(int to, std::span<const std::byte> bytes) {
    const std::size_t taken = at(to).link->payload.write(bytes).bytes;
    // A peer that takes no more may have left something to be read: that it is gone is found out by reading.
    sent_ += taken;
    return taken;
  }

  std::size_t try_receive(int from, std::span<std::byte> room) {
    return read_payload(from, [&](Stream& payload) { return payload.read(room); });
  }

  std::size_t try_send_pieces(int to, std::span<const std::span<const std::byte>> pieces)
    requires requires(Stream& stream) { stream.write_pieces(pieces); }
  {
    if (pieces.size() == 1) {
      return try_send(to, pieces.front());
    }
    const std::size_t taken = at(to).link->payload.write_pieces(pieces).bytes;
    sent_ += taken;
    return taken;
  }

  std::size_t try_receive_pieces(int from, std::span<const std::span<std::byte>> pieces)
    requires requires(Stream& stream) { stream.read_pieces(pieces); }
  {
    if (pieces.size() == 1) {
      return try_receive(from, pieces.front());
    }
    return read_payload(from, [&](Stream& payload) { return payload.read_pieces(pieces); });
  }

  bool try_send_control(int to, const control_message& message) {
    const std::lock_guard lock(control_);
    return at(to).channel.send(frame_type::message, message, at(to).link->control);
  }

  bool try_receive_control(int from, control_message& message) {
    const std::lock_guard lock(control_);
    return at(from).channel.take(message, at(from).link->control);
  }

  bool peer_closed(int who) {
    peer& each = at(who);
    {
      const std::lock_guard lock(control_);
      if (readiness_.is_worth_reading(control_of(who))) {
        pump(who);
      }
      if (!each.channel.closed() || each.channel.has_message()) {
        return false;
      }
    }
    each.payload_closed = each.payload_closed || each.link->payload.at_end();
    readiness_.left_unread(payload_of(who));  // to find that out may have taken something in
    return each.payload_closed;
  }

  /// Tells all peers, and waits a moment for what they have to tell, until the story is settled.
  failure abort(failure cause) {
    const std::lock_guard lock(control_);
    pump_all();  // a cause that has arrived came first
    settling_.begin(std::move(cause), std::chrono::steady_clock::now());
    for (settle(); !settling_.complete(); pump_all()) {
      std::vector<pollfd> awaited;
      for (int p = 0; p < size(); ++p) {
        if (settling_.awaits(p)) {
          awaited.push_back({at(p).link->control.native_handle(), POLLIN, 0});
        }
      }
      (void)::poll(awaited.data(), awaited.size(), milliseconds_until(*settling_.due()));
    }
    return settling_.chosen();
  }

  /// The same without waiting: what the others have to tell is taken in when something waits here, if ever.
  void tell(failure cause) {
    const std::lock_guard lock(control_);
    pump_all();
    settling_.begin(std::move(cause), std::chrono::steady_clock::now());
    settle();
  }

  const failure* aborted() const { return aborted_.load(std::memory_order_acquire); }

  std::uint64_t events() {
    readiness_.begin_round();
    return rung_.load(std::memory_order_acquire);
  }

  void wait(std::uint64_t seen, deadline until) {
    if (rung_.load(std::memory_order_acquire) != seen) {
      return;
    }
    {
      const std::lock_guard lock(control_);
      until = std::min(until, settling_.due().value_or(until));
    }
    if (!spin_.until([&] { return readiness_.look(0); })) {
      readiness_.look(milliseconds_until(until));
    }
    const std::lock_guard lock(control_);
    readiness_.take_in([&](std::size_t connection) {
      if (connection % 2 != 0) {
        pump(static_cast<int>(connection / 2));
      }
    });
    settle();
  }

  std::uint64_t payload_bytes_sent() const { return sent_; }
  int doorbell() const { return doorbell_; }

  /// This rank's addresses, each once.
  std::string here() const {
    std::string all;
    for (const peer& each : peers_) {
      if (each.link && all.find(each.link->here) == std::string::npos) {
        all += (all.empty() ? "" : ", ") + each.link->here;
      }
    }
    return all;
  }

  const std::string& route(int to) const { return peers_[static_cast<std::size_t>(to)].link->route; }
  const link_ends& ends(int to) const { return peers_[static_cast<std::size_t>(to)].link->ends; }

 private:
  struct peer {
    explicit peer(std::optional<link_type> to) : link(std::move(to)) {}
    std::optional<link_type> link;
    bool payload_closed = false;
    control_channel channel;
  };

  peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  static constexpr std::size_t payload_of(int rank) { return 2 * static_cast<std::size_t>(rank); }
  static constexpr std::size_t control_of(int rank) { return payload_of(rank) + 1; }

  template <class Read>
  std::size_t read_payload(int from, Read&& read) {
    peer& each = at(from);
    if (each.payload_closed || !readiness_.is_worth_reading(payload_of(from))) {
      return 0;
    }
    const io_result done = read(each.link->payload);
    each.payload_closed = done.closed;
    if (done.drained) {
      readiness_.drained(payload_of(from));
    }
    return done.bytes;
  }

  static int milliseconds_until(deadline until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  }

  // ---- the control connections; the caller holds the mutex ----------------------------------------------------------

  /// Takes in what has come on a control connection.
  void pump(int whose) {
    peer& from = at(whose);
    if (!from.link) {
      return;
    }
    from.channel.flush(from.link->control);
    from.channel.receive(from.link->control);
    if (!from.channel.stalled()) {
      readiness_.drained(control_of(whose));
    }
    while (auto cause = from.channel.take_failure()) {
      settling_.hear(whose, std::move(*cause), std::chrono::steady_clock::now());
    }
    if (from.channel.closed()) {
      settling_.lose(whose);
    }
    settle();
  }

  void pump_all() {
    for (int p = 0; p < size(); ++p) {
      pump(p);
    }
    settle();
  }

  /// Says what there is to say about a failure, and lets whoever waits know.
  void settle() {
    if (!settling_.begun()) {
      return;
    }
    while (const auto message = settling_.next_message(std::chrono::steady_clock::now())) {
      const std::vector<std::byte> bytes = encode_failure(*message);
      for (peer& each : peers_) {
        if (each.link) {
          each.channel.send(frame_type::failure, bytes, each.link->control);
        }
      }
    }
    const failure* told = settling_.complete() ? &settling_.chosen() : &settling_.first();
    if (aborted_.exchange(told, std::memory_order_acq_rel) != told) {
      rung_.fetch_add(1, std::memory_order_release);
      const std::uint64_t one = 1;
      (void)!::write(doorbell_, &one, sizeof one);
    }
  }

  std::unique_ptr<boost::asio::io_context> context_;
  int rank_;
  int doorbell_;  // rings when the job has failed, whichever thread found out
  readiness readiness_;
  std::deque<peer> peers_;
  std::uint64_t sent_ = 0;
  std::atomic<std::uint64_t> rung_{0};
  spinner spin_;  // of whoever waits

  std::mutex control_;
  settlement settling_;
  std::atomic<const failure*> aborted_{nullptr};
};

}  // namespace detail

/// One rank's end of a job over TCP. `connect_mesh` makes it. Destroying it closes it: peers still receive what was sent.
template <byte_stream Stream>
class basic_asio_transport {
 public:
  /// `protection` says in words what keeps strangers out, for the report. `terms` are those of groups.
  basic_asio_transport(std::unique_ptr<boost::asio::io_context> context, int rank,
                       std::vector<std::optional<asio_link<Stream>>> links, const char* protection,
                       detail::connection_terms terms = {})
      : mesh_(std::make_unique<detail::asio_mesh<Stream>>(std::move(context), rank, std::move(links))),
        protection_(protection),
        terms_(std::move(terms)) {}

  int rank() const { return mesh_->rank(); }
  int size() const { return mesh_->size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) { return mesh_->try_send(peer, bytes); }
  std::size_t try_receive(int peer, std::span<std::byte> room) { return mesh_->try_receive(peer, room); }
  std::size_t try_send_pieces(int peer, std::span<const std::span<const std::byte>> pieces)
    requires requires(detail::asio_mesh<Stream>& mesh) { mesh.try_send_pieces(peer, pieces); }
  {
    return mesh_->try_send_pieces(peer, pieces);
  }
  std::size_t try_receive_pieces(int peer, std::span<const std::span<std::byte>> pieces)
    requires requires(detail::asio_mesh<Stream>& mesh) { mesh.try_receive_pieces(peer, pieces); }
  {
    return mesh_->try_receive_pieces(peer, pieces);
  }
  bool try_send_control(int peer, const control_message& message) { return mesh_->try_send_control(peer, message); }
  bool try_receive_control(int peer, control_message& message) { return mesh_->try_receive_control(peer, message); }
  bool peer_closed(int peer) { return mesh_->peer_closed(peer); }
  failure abort(failure cause) { return mesh_->abort(std::move(cause)); }
  void tell(failure cause) { mesh_->tell(std::move(cause)); }
  const failure* aborted() const { return mesh_->aborted(); }

  /// By connections of its own, from and to where those of this one lead, on the same terms. See transport_makes_groups.
  template <class Gather>
  std::optional<basic_asio_transport> subgroup(std::span<const int> members, Gather&& gather) {
    auto context = std::make_unique<boost::asio::io_context>();
    auto made = detail::connect_group<Stream>(*context, *mesh_, members, terms_, gather);
    if (members.empty()) {
      return std::nullopt;
    }
    return basic_asio_transport(std::move(context), made.rank, std::move(made.links), protection_, terms_);
  }

  std::uint64_t events() { return mesh_->events(); }
  void wait(std::uint64_t seen, deadline until) { mesh_->wait(seen, until); }
  deadline now() const { return std::chrono::steady_clock::now(); }
  std::uint64_t payload_bytes_sent() const { return mesh_->payload_bytes_sent(); }
  /// Writing to it, from any process, ends `wait`.
  int doorbell() const { return mesh_->doorbell(); }

  /// Both addresses of the connection to a peer.
  std::string route(int peer) const { return mesh_->route(peer); }
  void describe(description& sink) const { sink.add("strangers", protection_); }
  void describe_here(description& sink) const { sink.add("talks from", mesh_->here()); }

 private:
  std::unique_ptr<detail::asio_mesh<Stream>> mesh_;
  const char* protection_;
  detail::connection_terms terms_;
};

using asio_transport = basic_asio_transport<tcp_stream>;

static_assert(byte_transport<asio_transport> && transport_takes_pieces<asio_transport> &&
              transport_makes_groups<asio_transport>);

}  // namespace gradweave
