/// @file
/// The TCP transport, over Boost.Asio's sockets: two connections to each peer. One carries payload, bare, straight from
/// and to the arena; the other carries control messages and failures, so that these are never stuck behind payload.
/// There is no thread: whoever waits drives it.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
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
#include <system_error>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <gradweave/error.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/control_frames.hpp>
#include <gradweave/transport/failure_message.hpp>

namespace gradweave {

/// The two connections to one peer, both non-blocking.
struct asio_link {
  boost::asio::ip::tcp::socket payload;
  boost::asio::ip::tcp::socket control;
};

namespace detail {

/// What may be shared with a thread that aborts. Payload belongs to the lane alone; control to whoever holds the mutex.
class asio_mesh {
 public:
  /// `links[r]` leads to rank r; the own one is empty.
  asio_mesh(std::unique_ptr<boost::asio::io_context> context, int rank, std::vector<std::optional<asio_link>> links)
      : context_(std::move(context)),
        rank_(rank),
        doorbell_(check(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")),
        readiness_(check(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {
    for (auto& link : links) {
      peers_.emplace_back(std::move(link));
    }
    watch(doorbell_, EPOLLIN, no_peer);
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (peers_[p].link) {
        watch(peers_[p].link->payload.native_handle(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, no_peer);
        watch(peers_[p].link->control.native_handle(), EPOLLIN | EPOLLOUT | EPOLLRDHUP, p);
      }
    }
    wait(rung_, std::chrono::steady_clock::now());  // that there is room for the first bytes is no event
  }
  asio_mesh(const asio_mesh&) = delete;
  asio_mesh& operator=(const asio_mesh&) = delete;

  ~asio_mesh() {
    for (peer& each : peers_) {
      if (each.link) {
        boost::system::error_code ignored;
        each.link->control.shutdown(boost::asio::socket_base::shutdown_send, ignored);
        each.link->payload.shutdown(boost::asio::socket_base::shutdown_send, ignored);
      }
    }
    ::close(readiness_);
    ::close(doorbell_);
  }

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(peers_.size()); }

  std::size_t try_send(int to, std::span<const std::byte> bytes) {
    peer& each = at(to);
    boost::system::error_code fault;
    const std::size_t taken = each.link->payload.write_some(boost::asio::buffer(bytes.data(), bytes.size()), fault);
    // A peer that takes no more may have left something to be read: that it is gone is found out by reading.
    sent_ += taken;
    return taken;
  }

  std::size_t try_receive(int from, std::span<std::byte> room) {
    peer& each = at(from);
    if (each.payload_closed) {
      return 0;
    }
    boost::system::error_code fault;
    const std::size_t arrived = each.link->payload.read_some(boost::asio::buffer(room.data(), room.size()), fault);
    each.payload_closed = fault && fault != boost::asio::error::would_block;
    return arrived;
  }

  bool try_send_control(int to, const control_message& message) {
    const std::lock_guard lock(control_);
    return send_frame(at(to), frame_type::message, message);
  }

  bool try_receive_control(int from, control_message& message) {
    const std::lock_guard lock(control_);
    peer& each = at(from);
    const bool taken = each.arrived.take(message);
    if (each.stalled) {
      pump(each);
    }
    return taken || each.arrived.take(message);
  }

  bool peer_closed(int who) {
    peer& each = at(who);
    {
      const std::lock_guard lock(control_);
      pump(each);
      if (!each.control_closed || each.arrived.has_message()) {
        return false;
      }
    }
    if (!each.payload_closed) {
      std::byte next;
      boost::system::error_code fault;
      each.link->payload.receive(boost::asio::buffer(&next, 1), boost::asio::socket_base::message_peek, fault);
      each.payload_closed = fault && fault != boost::asio::error::would_block;
    }
    return each.payload_closed;
  }

  /// Tells all peers, and waits a moment for what they have to tell: the cause that comes first is every rank's story.
  failure abort(failure cause) {
    const std::lock_guard lock(control_);
    if (!settled_) {
      if (!first_) {
        note(std::move(cause));
      }
      settle();
    }
    return *settled_;
  }

  const failure* aborted() const { return aborted_.load(std::memory_order_acquire); }

  std::uint64_t events() const { return rung_.load(std::memory_order_acquire); }

  /// Readiness is edge-triggered: what happened since it was last reported ends the sleep at once, and payload that
  /// nobody wants yet does not end it again and again.
  void wait(std::uint64_t seen, deadline until) {
    if (rung_.load(std::memory_order_acquire) != seen) {
      return;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
    std::array<epoll_event, 64> ready;
    const int count = ::epoll_wait(readiness_, ready.data(), static_cast<int>(ready.size()),
                                   static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000)));
    for (int i = 0; i < count; ++i) {
      if (ready[static_cast<std::size_t>(i)].data.u64 != no_peer) {
        const std::lock_guard lock(control_);
        pump(peers_[ready[static_cast<std::size_t>(i)].data.u64]);
      }
    }
  }

  std::uint64_t payload_bytes_sent() const { return sent_; }

 private:
  struct peer {
    explicit peer(std::optional<asio_link> to) : link(std::move(to)) {}
    std::optional<asio_link> link;
    bool payload_closed = false;
    bool control_closed = false;
    frame_decoder arrived;
    bool stalled = false;           // more may have come than `arrived` has room for
    std::vector<std::byte> unsent;  // control bytes that did not all go out
    std::optional<failure> told;    // how the peer tells the job's end
  };

  peer& at(int rank) { return peers_[static_cast<std::size_t>(rank)]; }

  static constexpr std::uint64_t no_peer = UINT64_MAX;

  static int check(int descriptor, const char* what) {
    if (descriptor < 0) {
      throw std::system_error(errno, std::generic_category(), std::string("gradweave: ") + what);
    }
    return descriptor;
  }

  void watch(int descriptor, std::uint32_t events, std::uint64_t whose) {
    epoll_event wanted{};
    wanted.events = events | EPOLLET;
    wanted.data.u64 = whose;
    check(::epoll_ctl(readiness_, EPOLL_CTL_ADD, descriptor, &wanted), "epoll_ctl");
  }

  // ---- the control connections; the caller holds the mutex ----------------------------------------------------------

  /// False where what was sent before has not gone out: then nothing of this frame has.
  bool send_frame(peer& to, frame_type type, std::span<const std::byte> body) {
    flush(to);
    if (!to.unsent.empty() && type == frame_type::message) {
      return false;
    }
    const auto header = frame_header(type, body.size());
    to.unsent.insert(to.unsent.end(), header.begin(), header.end());
    to.unsent.insert(to.unsent.end(), body.begin(), body.end());
    flush(to);
    return true;
  }

  void flush(peer& to) {
    while (!to.unsent.empty() && !to.control_closed) {
      boost::system::error_code fault;
      const std::size_t taken = to.link->control.write_some(boost::asio::buffer(to.unsent), fault);
      to.unsent.erase(to.unsent.begin(), to.unsent.begin() + static_cast<std::ptrdiff_t>(taken));
      if (fault == boost::asio::error::would_block) {
        return;
      }
      if (fault) {
        break;  // what it sent before it went may still be there to be read
      }
    }
  }

  /// Takes in what has come on a control connection.
  void pump(peer& from) {
    if (!from.link) {
      return;
    }
    flush(from);
    from.stalled = false;
    while (!from.control_closed) {
      if (from.arrived.room().empty()) {
        from.stalled = true;
        break;
      }
      boost::system::error_code fault;
      const auto room = from.arrived.room();
      const std::size_t arrived = from.link->control.read_some(boost::asio::buffer(room.data(), room.size()), fault);
      if (fault == boost::asio::error::would_block) {
        break;
      }
      from.control_closed = fault || !from.arrived.commit(arrived);
    }
    if (auto cause = from.arrived.take_failure()) {
      from.told = std::move(cause);
      if (!first_) {
        note(*from.told);
      }
    }
  }

  /// The job has failed, as far as this rank knows for the first reason that it heard of.
  void note(failure cause) {
    first_ = std::move(cause);
    aborted_.store(&*first_, std::memory_order_release);
    rung_.fetch_add(1, std::memory_order_release);
    const std::uint64_t one = 1;
    (void)!::write(doorbell_, &one, sizeof one);
  }

  /// Every rank sends all others the first cause that it knew, and waits for theirs. So all who are alive choose among
  /// the same causes.
  void settle() {
    const std::vector<std::byte> message = encode_failure(*first_);
    for (peer& each : peers_) {
      if (each.link) {
        send_frame(each, frame_type::failure, message);
      }
    }
    const deadline until = std::chrono::steady_clock::now() + settle_time;
    for (;;) {
      std::vector<pollfd> silent;
      for (peer& each : peers_) {
        pump(each);
        if (each.link && !each.told && !each.control_closed) {
          silent.push_back({each.link->control.native_handle(), POLLIN, 0});
        }
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      if (silent.empty() || left <= 0) {
        break;
      }
      (void)::poll(silent.data(), silent.size(), static_cast<int>(left));
    }
    settled_ = *first_;
    for (const peer& each : peers_) {
      if (each.told && comes_before(*each.told, *settled_)) {
        settled_ = each.told;
      }
    }
    aborted_.store(&*settled_, std::memory_order_release);
  }

  /// How long a rank that ends the job waits for ranks that do not answer: they are busy, or stopped.
  static constexpr std::chrono::milliseconds settle_time{700};

  std::unique_ptr<boost::asio::io_context> context_;
  int rank_;
  int doorbell_;   // rings when the job has failed, whichever thread found out
  int readiness_;  // epoll
  std::deque<peer> peers_;
  std::uint64_t sent_ = 0;
  std::atomic<std::uint64_t> rung_{0};

  std::mutex control_;
  std::optional<failure> first_;
  std::optional<failure> settled_;
  std::atomic<const failure*> aborted_{nullptr};
};

}  // namespace detail

/// One rank's end of a job over TCP. `connect_mesh` makes it. Destroying it closes it: peers still receive what was sent.
class asio_transport {
 public:
  asio_transport(std::unique_ptr<boost::asio::io_context> context, int rank,
                 std::vector<std::optional<asio_link>> links)
      : mesh_(std::make_unique<detail::asio_mesh>(std::move(context), rank, std::move(links))) {}

  int rank() const { return mesh_->rank(); }
  int size() const { return mesh_->size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) { return mesh_->try_send(peer, bytes); }
  std::size_t try_receive(int peer, std::span<std::byte> room) { return mesh_->try_receive(peer, room); }
  bool try_send_control(int peer, const control_message& message) { return mesh_->try_send_control(peer, message); }
  bool try_receive_control(int peer, control_message& message) { return mesh_->try_receive_control(peer, message); }
  bool peer_closed(int peer) { return mesh_->peer_closed(peer); }
  failure abort(failure cause) { return mesh_->abort(std::move(cause)); }
  const failure* aborted() const { return mesh_->aborted(); }
  std::uint64_t events() { return mesh_->events(); }
  void wait(std::uint64_t seen, deadline until) { mesh_->wait(seen, until); }
  deadline now() const { return std::chrono::steady_clock::now(); }
  std::uint64_t payload_bytes_sent() const { return mesh_->payload_bytes_sent(); }

 private:
  std::unique_ptr<detail::asio_mesh> mesh_;
};

static_assert(byte_transport<asio_transport>);

}  // namespace gradweave
