/// @file
/// Keeps the ranks together from the moment at which they have the table of addresses until each is connected to each
/// other. The connections by which they met stay open: rank 0 hears on them how far everybody has come, and that a rank
/// is gone, and tells the others; that rank 0 is gone they see themselves. So all throw one story, at once.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>

#include <gradweave/error.hpp>
#include <gradweave/transport/call.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/envelope.hpp>
#include <gradweave/transport/introduction.hpp>
#include <gradweave/transport/rendezvous.hpp>
#include <gradweave/transport/rendezvous_options.hpp>

namespace gradweave::detail {

/// It listens whenever the context runs. A story is a `welcome` with a fault: rank 0 takes the first that it hears or
/// finds, and sends it to all.
class mesh_barrier {
 public:
  static constexpr const char* came = "came to the rendezvous";

  /// `connections[r]` leads to rank r: on rank 0 to all others, on these to rank 0 alone.
  mesh_barrier(boost::asio::io_context& context, const rendezvous_options& options,
               std::vector<std::optional<tcp_socket>> connections)
      : context_(context), options_(options), members_(connections.size()) {
    for (std::size_t rank = 0; rank < members_.size(); ++rank) {
      if (connections[rank]) {
        members_[rank].connection = std::move(connections[rank]);
        members_[rank].route = route_of(*members_[rank].connection);
        listen_to(rank);
      }
    }
  }
  mesh_barrier(const mesh_barrier&) = delete;
  mesh_barrier& operator=(const mesh_barrier&) = delete;
  ~mesh_barrier() {
    boost::system::error_code ignored;
    closed_ = true;
    for (member& each : members_) {
      if (each.connection) {
        each.connection->close(ignored);
      }
    }
    context_.restart();
    context_.poll();  // lets what was cancelled go
  }

  /// For what a rank waits for meanwhile: until `until`, or until there is a story, which `fail` then throws.
  wait_limit limit(deadline until) const { return {until, failed_}; }

  /// Returns when all ranks have called this as often as this one has. Throws the story.
  void arrive(deadline until) {
    ++arrivals_;
    const bool is_host = options_.rank == 0;
    if (!is_host) {
      send_message(*members_[0].connection, message_kind::arrived, {});
    }
    // Rank 0 decides who is late: the others give it time to say so.
    const deadline patience = is_host ? until : until + std::chrono::seconds(3);
    if (!run_until(context_, limit(patience), [this] { return first_late() == members_.size(); })) {
      if (is_host) {
        // Who waited in vain for a rank that is later still says so now, and knows better.
        run_until(context_, std::chrono::steady_clock::now() + std::chrono::seconds(1), [this] { return failed_; });
      }
      const std::size_t late = std::min(first_late(), members_.size() - 1);
      fail(errc::timed_out, static_cast<int>(late),
           "rank " + std::to_string(late) + " (" + members_[late].route + ") " +
               (is_host ? "came to the rendezvous, but was not connected to all others within "
                        : "did not say within ") +
               std::to_string(options_.timeout.count()) + " ms" + (is_host ? "" : " whether all ranks are connected"));
    }
    if (is_host) {
      tell_all(message_kind::arrived, {});
    }
  }

  /// Throws the story: this one, unless there was another before. It names the same rank on all ranks, since who is
  /// closed by a rank that heard the story first has that story coming, too.
  [[noreturn]] void fail(errc code, int culprit, const std::string& what) {
    if (options_.rank == 0) {
      context_.restart();
      context_.poll();  // what has arrived came first
    }
    if (!failed_) {
      welcome own;
      own.refuse(code, culprit, what);
      if (options_.rank == 0) {
        conclude(own);
      } else {
        send_message(*members_[0].connection, message_kind::answer, own.encode());
        run_until(context_, std::chrono::steady_clock::now() + std::chrono::seconds(2), [this] { return failed_; });
        if (!failed_) {
          // It would have answered. Who this rank waited for in vain may itself have waited for rank 0.
          story_.refuse(errc::timed_out, 0, "rank 0 (" + members_[0].route + ") says nothing any more; " + what);
        }
      }
    }
    fail_rendezvous(options_, story_.code, story_.culprit, story_.fault);
  }

 private:
  static constexpr std::size_t story_bytes_max = 4096;

  struct member {
    std::optional<tcp_socket> connection;
    std::string route;
    int arrivals = 0;
    message_kind kind{};
    std::array<std::byte, envelope_bytes> head{};
    std::vector<std::byte> body;
  };

  /// The first rank that has not come as far as this one; how many there are where all have.
  std::size_t first_late() const {
    const auto late = std::find_if(members_.begin(), members_.end(),
                                   [this](const member& each) { return each.connection && each.arrivals < arrivals_; });
    return static_cast<std::size_t>(late - members_.begin());
  }

  void listen_to(std::size_t rank) {
    member& from = members_[rank];
    boost::asio::async_read(
        *from.connection, boost::asio::buffer(from.head), [this, rank](boost::system::error_code fault, std::size_t) {
          const auto opened = fault ? std::nullopt : open_envelope(members_[rank].head, story_bytes_max);
          if (!opened) {
            lose(rank, fault);
            return;
          }
          members_[rank].kind = opened->kind;
          members_[rank].body.resize(opened->body_bytes);
          boost::asio::async_read(*members_[rank].connection, boost::asio::buffer(members_[rank].body),
                                  [this, rank](boost::system::error_code late, std::size_t) {
                                    if (late) {
                                      lose(rank, late);
                                    } else {
                                      hear(rank);
                                    }
                                  });
        });
  }

  void hear(std::size_t rank) {
    member& from = members_[rank];
    if (from.kind == message_kind::arrived) {
      ++from.arrivals;
      listen_to(rank);
      return;
    }
    const auto story = from.kind == message_kind::answer ? welcome::decode(from.body) : std::nullopt;
    if (!story || story->fault.empty() || story->culprit >= options_.size) {
      lose(rank, {});
    } else if (!closed_) {
      conclude(*story);
    }
  }

  void lose(std::size_t rank, boost::system::error_code fault) {
    if (!closed_) {
      welcome lost;
      lost.refuse(errc::peer_lost, static_cast<std::int32_t>(rank),
                  "rank " + std::to_string(rank) + " (" + members_[rank].route +
                      ") came to the rendezvous, and is gone before all ranks were connected: " +
                      (fault ? fault.message() : "what it said makes no sense"));
      conclude(lost);
    }
  }

  void conclude(const welcome& story) {
    if (!failed_) {
      story_ = story;
      failed_ = true;
      if (options_.rank == 0) {
        tell_all(message_kind::answer, story_.encode());
      }
    }
  }

  void tell_all(message_kind kind, std::span<const std::byte> body) {
    for (member& each : members_) {
      if (each.connection) {
        send_message(*each.connection, kind, body);
      }
    }
  }

  boost::asio::io_context& context_;
  const rendezvous_options& options_;
  std::vector<member> members_;
  int arrivals_ = 0;
  bool failed_ = false;
  bool closed_ = false;
  welcome story_;
};

}  // namespace gradweave::detail
