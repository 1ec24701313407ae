/// @file
/// TLS 1.3 (RFC 8446) over a TCP connection, by OpenSSL. The job's secret is the pre-shared key of both sides, so there are
/// no certificates; keys are fresh for each connection (psk_dhe_ke), so that who learns the secret later reads nothing of
/// what went before.
///
/// It is OpenSSL's own stream on top of an Asio socket and not Asio's: what Asio's holds back is lost where its
/// synchronous calls would block.
#pragma once

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <poll.h>

#include <boost/asio/ip/tcp.hpp>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <gradweave/transport/authentication.hpp>
#include <gradweave/transport/concept.hpp>
#include <gradweave/transport/stream.hpp>

namespace gradweave {

namespace detail {

/// Frees what OpenSSL made.
struct openssl_free {
  void operator()(SSL* each) const { SSL_free(each); }
  void operator()(SSL_CTX* each) const { SSL_CTX_free(each); }
  void operator()(BIO_METHOD* each) const { BIO_meth_free(each); }
};

/// An Asio socket as OpenSSL reads and writes it, without a signal where the peer is gone.
inline const BIO_METHOD* socket_method() {
  static const std::unique_ptr<BIO_METHOD, openssl_free> method = [] {
    using socket = boost::asio::ip::tcp::socket;
    std::unique_ptr<BIO_METHOD, openssl_free> made(BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "asio"));
    BIO_meth_set_write(made.get(), [](BIO* bio, const char* from, int length) {
      BIO_clear_retry_flags(bio);
      boost::system::error_code fault;
      const std::size_t taken = static_cast<socket*>(BIO_get_data(bio))
                                    ->write_some(boost::asio::buffer(from, static_cast<std::size_t>(length)), fault);
      if (fault == boost::asio::error::would_block) {
        BIO_set_retry_write(bio);
      }
      return fault ? -1 : static_cast<int>(taken);
    });
    BIO_meth_set_read(made.get(), [](BIO* bio, char* to, int length) {
      BIO_clear_retry_flags(bio);
      boost::system::error_code fault;
      const std::size_t arrived = static_cast<socket*>(BIO_get_data(bio))
                                      ->read_some(boost::asio::buffer(to, static_cast<std::size_t>(length)), fault);
      if (fault == boost::asio::error::would_block) {
        BIO_set_retry_read(bio);
      }
      return fault == boost::asio::error::eof ? 0 : fault ? -1 : static_cast<int>(arrived);
    });
    BIO_meth_set_ctrl(made.get(), [](BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1L : 0L; });
    return made;
  }();
  return method.get();
}

[[noreturn]] inline void throw_openssl(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  throw std::runtime_error(std::string("gradweave: TLS: ") + what + ": " + text.data());
}

/// The settings of one side, with the key that the secret gives.
inline std::unique_ptr<SSL_CTX, openssl_free> tls_settings(prover who) {
  std::unique_ptr<SSL_CTX, openssl_free> made(
      SSL_CTX_new(who == prover::caller ? TLS_client_method() : TLS_server_method()));
  if (!made || SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(made.get(), "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256") != 1 ||
      SSL_CTX_set_num_tickets(made.get(), 0) != 1) {
    throw_openssl("settings");
  }
  SSL_CTX_set_mode(made.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(made.get(), SSL_VERIFY_NONE, nullptr);  // who has the key is who he says
  const auto key_of = [](SSL* ssl, unsigned char* key, unsigned int room) -> unsigned int {
    const auto* const derived = static_cast<const secret_proof*>(SSL_get_app_data(ssl));
    if (room < derived->size()) {
      return 0;
    }
    std::memcpy(key, derived->data(), derived->size());
    return static_cast<unsigned int>(derived->size());
  };
  static_assert(std::is_empty_v<decltype(key_of)>);
  SSL_CTX_set_psk_client_callback(made.get(),
                                  [](SSL* ssl, const char*, char* identity, unsigned int identity_room,
                                     unsigned char* key, unsigned int room) -> unsigned int {
                                    constexpr char name[] = "gradweave";
                                    if (identity_room < sizeof name) {
                                      return 0;
                                    }
                                    std::memcpy(identity, name, sizeof name);
                                    return decltype(key_of){}(ssl, key, room);
                                  });
  SSL_CTX_set_psk_server_callback(made.get(),
                                  [](SSL* ssl, const char*, unsigned char* key, unsigned int room) -> unsigned int {
                                    return decltype(key_of){}(ssl, key, room);
                                  });
  return made;
}

}  // namespace detail

/// A connection under TLS, as tcp_stream is one without.
class tls_stream {
 public:
  static constexpr const char* protection = "secret, TLS 1.3";
  static constexpr bool needs_secret = true;

  tls_stream(tls_stream&&) = default;
  tls_stream& operator=(tls_stream&&) = default;

  /// Shakes hands over a connected socket until the deadline. Throws std::runtime_error that says why it failed.
  tls_stream(boost::asio::ip::tcp::socket socket, stream_side side, const std::string& secret, deadline until)
      : held_(std::make_unique<held>(std::move(socket))) {
    using namespace detail;
    const prover who = side == stream_side::caller ? prover::caller : prover::host;
    // A key of its own: what proves the secret is not what encrypts.
    nonce label{};
    std::memcpy(label.data(), "gradweave tls 1.3 pre-shared key", label.size());
    held_->key = prove(secret, prover::host, label, label);
    held_->settings = tls_settings(who);
    held_->ssl.reset(SSL_new(held_->settings.get()));
    BIO* const bio = BIO_new(socket_method());
    if (!held_->ssl || bio == nullptr) {
      throw_openssl("a connection");
    }
    BIO_set_data(bio, &held_->socket);
    BIO_set_init(bio, 1);
    SSL_set_bio(held_->ssl.get(), bio, bio);
    SSL_set_app_data(held_->ssl.get(), &held_->key);
    who == prover::caller ? SSL_set_connect_state(held_->ssl.get()) : SSL_set_accept_state(held_->ssl.get());
    shake_hands(until);
  }

  int native_handle() { return held_->socket.native_handle(); }

  io_result write(std::span<const std::byte> bytes) {
    std::size_t taken = 0;
    ERR_clear_error();
    const int outcome = bytes.empty() ? 1 : SSL_write_ex(held_->ssl.get(), bytes.data(), bytes.size(), &taken);
    return {taken, outcome != 1 && is_broken(outcome)};
  }

  io_result read(std::span<std::byte> room) {
    std::size_t arrived = 0;
    ERR_clear_error();
    const int outcome = room.empty() ? 1 : SSL_read_ex(held_->ssl.get(), room.data(), room.size(), &arrived);
    return {arrived, outcome != 1 && is_broken(outcome), arrived == 0};  // a read gives one record at most
  }

  /// Whether everything that the peer sent has been read, and nothing more comes.
  bool at_end() {
    std::byte next;
    std::size_t there = 0;
    ERR_clear_error();
    const int outcome = SSL_peek_ex(held_->ssl.get(), &next, 1, &there);
    return outcome != 1 && is_broken(outcome);
  }

  void shut_down() {
    ERR_clear_error();
    SSL_shutdown(held_->ssl.get());
    boost::system::error_code ignored;
    held_->socket.shutdown(boost::asio::socket_base::shutdown_send, ignored);
  }

 private:
  /// What OpenSSL points to, so that the stream can move.
  struct held {
    explicit held(boost::asio::ip::tcp::socket s) : socket(std::move(s)) {}
    boost::asio::ip::tcp::socket socket;
    detail::secret_proof key{};
    std::unique_ptr<SSL_CTX, detail::openssl_free> settings;
    std::unique_ptr<SSL, detail::openssl_free> ssl;
  };

  /// Whether it failed for another reason than that it would block.
  bool is_broken(int outcome) {
    const int why = SSL_get_error(held_->ssl.get(), outcome);
    return why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
  }

  void shake_hands(deadline until) {
    for (;;) {
      ERR_clear_error();
      const int outcome = SSL_do_handshake(held_->ssl.get());
      if (outcome == 1) {
        return;
      }
      const int why = SSL_get_error(held_->ssl.get(), outcome);
      if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) {
        detail::throw_openssl("the handshake failed");
      }
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()).count();
      if (left <= 0) {
        throw std::runtime_error("gradweave: TLS: the handshake was not answered in time");
      }
      pollfd ready{native_handle(), static_cast<short>(why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT), 0};
      (void)::poll(&ready, 1, static_cast<int>(std::min<long long>(left, 3'600'000)));
    }
  }

  std::unique_ptr<held> held_;
};

static_assert(byte_stream<tls_stream>);

}  // namespace gradweave
