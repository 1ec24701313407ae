/// @file
/// Takes connections in and hands on those that introduce themselves, once both sides have proved to each other that they
/// know the job's secret. (Where there is none everybody knows it, and all that is proved is that both speak this
/// protocol.) A visitor can hold at most a few KiB for a
/// few seconds, and only so many are heard at once; who is a stranger is closed without an answer.
#pragma once

#include <algorithm>
#include <array>
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

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <gradweave/transport/authentication.hpp>
#include <gradweave/transport/envelope.hpp>

namespace gradweave::detail {

/// Listens at `port`, of `address` or else of every address of this host, IPv6 too where there is one. 0 is any port.
inline boost::asio::ip::tcp::acceptor listen_at(boost::asio::io_context& context, std::uint16_t port,
                                                const std::optional<boost::asio::ip::address>& address = {}) {
  using boost::asio::ip::tcp;
  tcp::acceptor acceptor(context);
  tcp::endpoint place(address.value_or(boost::asio::ip::address_v6::any()), port);
  boost::system::error_code fault;
  acceptor.open(place.protocol(), fault);
  if (fault && !address) {  // a host without IPv6
    place = tcp::endpoint(tcp::v4(), port);
    acceptor.open(place.protocol());
  }
  if (place.protocol() == tcp::v6()) {
    acceptor.set_option(boost::asio::ip::v6_only(address.has_value()));
  }
  // A job may begin right after another at the same port. Where any port will do it must be one that nobody holds.
  acceptor.set_option(tcp::acceptor::reuse_address(port != 0));
  acceptor.bind(place);
  acceptor.listen(4096);
  return acceptor;
}

/// What to look at where ranks are missing and callers were sent away.
inline std::string to_text_of_refused(std::size_t count) {
  return count == 0 ? ""
                    : "; " + std::to_string(count) +
                          " times somebody came with another secret, or only one of both has one (GRADWEAVE_SECRET)";
}

class reception {
 public:
  using socket = boost::asio::ip::tcp::socket;
  using introduced = std::function<void(socket, std::span<const std::byte>)>;

  /// Calls `on_introduction(socket, body)` while `context` runs. The acceptor listens already. The secret may be empty.
  reception(boost::asio::io_context& context, boost::asio::ip::tcp::acceptor acceptor, std::string secret,
            introduced on_introduction)
      : context_(context),
        shared_(std::make_shared<state>(std::move(acceptor), std::move(secret), std::move(on_introduction))) {
    accept(shared_);
  }
  reception(const reception&) = delete;
  reception& operator=(const reception&) = delete;
  ~reception() {
    boost::system::error_code ignored;
    shared_->closed = true;
    shared_->acceptor.close(ignored);
    shared_->again.cancel();
    for (const std::weak_ptr<visitor>& each : shared_->visitors) {
      if (const auto guest = each.lock()) {
        guest->connection.close(ignored);
        guest->timer.cancel();
      }
    }
    context_.restart();
    context_.poll();  // lets what was cancelled go
  }

  /// How many callers were sent away since they know another secret.
  std::size_t refused() const { return shared_->refused; }

 private:
  static constexpr std::chrono::seconds patience{5};
  static constexpr std::size_t visitors_max = 256;

  struct visitor {
    explicit visitor(socket s) : connection(std::move(s)), timer(connection.get_executor()) {}
    socket connection;
    boost::asio::steady_timer timer;
    std::array<std::byte, envelope_bytes> head{};
    std::vector<std::byte> body;
    std::vector<std::byte> outgoing;
    nonce caller_nonce{};
    nonce host_nonce{};
    message_kind awaited = message_kind::caller_nonce;
  };

  struct state {
    state(boost::asio::ip::tcp::acceptor a, std::string s, introduced i)
        : acceptor(std::move(a)), again(acceptor.get_executor()), secret(std::move(s)), on_introduction(std::move(i)) {}
    boost::asio::ip::tcp::acceptor acceptor;
    boost::asio::steady_timer again;
    std::string secret;
    introduced on_introduction;
    std::vector<std::weak_ptr<visitor>> visitors;
    std::size_t refused = 0;
    bool closed = false;
  };

  using host_pointer = std::shared_ptr<state>;
  using guest_pointer = std::shared_ptr<visitor>;

  static void accept(const host_pointer& host) {
    host->acceptor.async_accept([host](boost::system::error_code fault, socket connection) {
      if (host->closed) {
        return;
      }
      std::erase_if(host->visitors, [](const auto& each) { return each.expired(); });
      if (!fault && host->visitors.size() < visitors_max) {
        const auto guest = std::make_shared<visitor>(std::move(connection));
        host->visitors.push_back(guest);
        close_when_late(guest);
        listen_to(host, guest);
      }
      // Out of descriptors, or too many visitors: some will be gone in a moment.
      host->again.expires_after(std::chrono::milliseconds(fault || host->visitors.size() == visitors_max ? 50 : 0));
      host->again.async_wait([host](boost::system::error_code stopped) {
        if (!host->closed && !stopped) {
          accept(host);
        }
      });
    });
  }

  static void close_when_late(const guest_pointer& guest) {
    guest->timer.expires_after(patience);
    guest->timer.async_wait([weak = std::weak_ptr(guest)](boost::system::error_code stopped) {
      if (const auto late = weak.lock(); late && !stopped) {
        boost::system::error_code ignored;
        late->connection.close(ignored);
      }
    });
  }

  /// Reads the message that comes next. A visitor that nothing waits for any more is gone.
  static void listen_to(const host_pointer& host, const guest_pointer& guest) {
    boost::asio::async_read(guest->connection, boost::asio::buffer(guest->head),
                            [host, guest](boost::system::error_code fault, std::size_t) {
                              const auto opened =
                                  fault ? std::nullopt : open_envelope(guest->head, introduction_bytes_max);
                              if (!opened || host->closed) {
                                return;
                              }
                              guest->body.resize(opened->body_bytes);
                              boost::asio::async_read(guest->connection, boost::asio::buffer(guest->body),
                                                      [host, guest](boost::system::error_code late, std::size_t) {
                                                        if (!late && !host->closed) {
                                                          hear(host, guest);
                                                        }
                                                      });
                            });
  }

  static void hear(const host_pointer& host, const guest_pointer& guest) {
    switch (guest->awaited) {
      case message_kind::caller_nonce:
        if (guest->body.size() == guest->caller_nonce.size()) {
          std::copy(guest->body.begin(), guest->body.end(), guest->caller_nonce.begin());
          guest->host_nonce = fresh_nonce();
          guest->awaited = message_kind::caller_proof;
          answer(host, guest, message_kind::host_nonce, guest->host_nonce);
        }
        return;
      case message_kind::caller_proof:
        if (is_proof(guest->body, prove(host->secret, prover::caller, guest->caller_nonce, guest->host_nonce))) {
          guest->awaited = message_kind::introduction;
          answer(host, guest, message_kind::host_proof,
                 prove(host->secret, prover::host, guest->caller_nonce, guest->host_nonce));
        } else {
          ++host->refused;
        }
        return;
      default: guest->timer.cancel(); host->on_introduction(std::move(guest->connection), guest->body);
    }
  }

  static void answer(const host_pointer& host, const guest_pointer& guest, message_kind kind,
                     std::span<const std::byte> body) {
    guest->outgoing = in_envelope(kind, body);
    boost::asio::async_write(guest->connection, boost::asio::buffer(guest->outgoing),
                             [host, guest](boost::system::error_code fault, std::size_t) {
                               if (!fault && !host->closed) {
                                 listen_to(host, guest);
                               }
                             });
  }

  boost::asio::io_context& context_;
  std::shared_ptr<state> shared_;
};

}  // namespace gradweave::detail
