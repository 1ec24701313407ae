/// @file
/// How two processes show each other that both know a secret, without saying it: challenge and response by HMAC-SHA256
/// (RFC 2104), with OpenSSL's libcrypto. Each side sends a fresh random number; each answers with the HMAC of both
/// numbers and of which side it is, so that an answer can't be played again or back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace gradweave::detail {

using nonce = std::array<std::byte, 32>;
using secret_proof = std::array<std::byte, 32>;

inline nonce fresh_nonce() {
  nonce made;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(made.data()), static_cast<int>(made.size())) != 1) {
    throw std::runtime_error("gradweave: OpenSSL has no random numbers");
  }
  return made;
}

enum class prover { caller, host };

inline secret_proof prove(std::string_view secret, prover who, const nonce& of_caller, const nonce& of_host) {
  const std::string_view role = who == prover::caller ? "gradweave caller" : "gradweave host  ";
  std::vector<unsigned char> said(role.begin(), role.end());
  for (const nonce* each : {&of_caller, &of_host}) {
    for (const std::byte byte : *each) {
      said.push_back(static_cast<unsigned char>(byte));
    }
  }
  secret_proof proof;
  unsigned int length = 0;
  const void* const made = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), said.data(), said.size(),
                                reinterpret_cast<unsigned char*>(proof.data()), &length);
  if (made == nullptr || length != proof.size()) {
    throw std::runtime_error("gradweave: OpenSSL can't compute an HMAC-SHA256");
  }
  return proof;
}

/// Takes as long for a wrong proof as for the right one.
inline bool is_proof(std::span<const std::byte> given, const secret_proof& right) {
  return given.size() == right.size() && CRYPTO_memcmp(given.data(), right.data(), right.size()) == 0;
}

}  // namespace gradweave::detail
