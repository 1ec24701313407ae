/// @file
/// Takes connections in and hands on those that introduce themselves. A visitor can hold at most a few KiB for a few
/// seconds, and only so many are heard at once; what is no introduction is closed without an answer.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

#include <gradweave/wire.hpp>

namespace gradweave::detail {

/// What every message of the rendezvous begins with: who speaks, and how long it is.
inline constexpr std::size_t envelope_bytes = 12;
inline constexpr std::size_t introduction_bytes_max = 2048;

inline std::vector<std::byte> in_envelope(std::span<const std::byte> body) {
  static constexpr char magic[] = "gradwv01";
  std::vector<std::byte> message(envelope_bytes + body.size());
  std::memcpy(message.data(), magic, 8);
  const auto length = static_cast<std::uint32_t>(body.size());
  for (std::size_t i = 0; i < sizeof length; ++i) {
    message[8 + i] = static_cast<std::byte>(length >> (8 * i) & 0xff);
  }
  std::copy(body.begin(), body.end(), message.begin() + envelope_bytes);
  return message;
}

/// The body's length, or nothing where this is no envelope or the body is longer than `bytes_max`.
inline std::optional<std::size_t> open_envelope(std::span<const std::byte, envelope_bytes> envelope,
                                                std::size_t bytes_max) {
  const auto expected = in_envelope({});
  if (!std::equal(envelope.begin(), envelope.begin() + 8, expected.begin())) {
    return std::nullopt;
  }
  byte_reader in(envelope.subspan<8>());
  const std::size_t length = in.number<std::uint32_t>();
  return length <= bytes_max ? std::optional(length) : std::nullopt;
}

class reception {
 public:
  using socket = boost::asio::ip::tcp::socket;
  using introduced = std::function<void(socket, std::span<const std::byte>)>;

  /// Calls `on_introduction(socket, body)` while `context` runs. The acceptor listens already.
  reception(boost::asio::io_context& context, boost::asio::ip::tcp::acceptor acceptor, introduced on_introduction)
      : context_(context), shared_(std::make_shared<state>(std::move(acceptor), std::move(on_introduction))) {
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

 private:
  static constexpr std::chrono::seconds patience{5};
  static constexpr std::size_t visitors_max = 256;

  struct visitor {
    explicit visitor(socket s) : connection(std::move(s)), timer(connection.get_executor()) {}
    socket connection;
    boost::asio::steady_timer timer;
    std::array<std::byte, envelope_bytes> envelope{};
    std::vector<std::byte> body;
  };

  struct state {
    state(boost::asio::ip::tcp::acceptor a, introduced i)
        : acceptor(std::move(a)), again(acceptor.get_executor()), on_introduction(std::move(i)) {}
    boost::asio::ip::tcp::acceptor acceptor;
    boost::asio::steady_timer again;
    introduced on_introduction;
    std::vector<std::weak_ptr<visitor>> visitors;
    bool closed = false;
  };

  static void accept(const std::shared_ptr<state>& host) {
    host->acceptor.async_accept([host](boost::system::error_code fault, socket connection) {
      if (host->closed) {
        return;
      }
      std::erase_if(host->visitors, [](const auto& each) { return each.expired(); });
      if (!fault && host->visitors.size() < visitors_max) {
        const auto guest = std::make_shared<visitor>(std::move(connection));
        host->visitors.push_back(guest);
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

  static void listen_to(const std::shared_ptr<state>& host, const std::shared_ptr<visitor>& guest) {
    guest->timer.expires_after(patience);
    guest->timer.async_wait([weak = std::weak_ptr(guest)](boost::system::error_code stopped) {
      if (const auto late = weak.lock(); late && !stopped) {
        boost::system::error_code ignored;
        late->connection.close(ignored);
      }
    });
    boost::asio::async_read(
        guest->connection, boost::asio::buffer(guest->envelope),
        [host, guest](boost::system::error_code fault, std::size_t) {
          const auto length = fault ? std::nullopt : open_envelope(guest->envelope, introduction_bytes_max);
          if (!length) {
            return;
          }
          guest->body.resize(*length);
          boost::asio::async_read(guest->connection, boost::asio::buffer(guest->body),
                                  [host, guest](boost::system::error_code late, std::size_t) {
                                    guest->timer.cancel();
                                    if (!late && !host->closed) {
                                      host->on_introduction(std::move(guest->connection), guest->body);
                                    }
                                  });
        });
  }

  boost::asio::io_context& context_;
  std::shared_ptr<state> shared_;
};

}  // namespace gradweave::detail
