#include <gradweave/transport/authentication.hpp>

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include <doctest/doctest.h>

using namespace gradweave::detail;

TEST_CASE("prove: is the HMAC-SHA256 of the role and both numbers") {
  nonce first{}, second{};
  first.fill(std::byte{0x01});
  second.fill(std::byte{0x02});
  std::string hexadecimal;
  for (const std::byte each : prove("secret", prover::caller, first, second)) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned>(each));
    hexadecimal += digits;
  }
  // hmac.new(b"secret", b"gradweave caller" + b"\1" * 32 + b"\2" * 32, "sha256").hexdigest(), by Python
  CHECK(hexadecimal == "73dc687876f77ce992ed142eb73bc400ef07c8051c9b19aa544eec91bc3681fc");
}

TEST_CASE("is_proof: of this secret, this role and these numbers alone") {
  const nonce caller = fresh_nonce(), host = fresh_nonce();
  CHECK(caller != host);
  const auto right = prove("secret", prover::caller, caller, host);
  CHECK(is_proof(right, prove("secret", prover::caller, caller, host)));
  CHECK_FALSE(is_proof(right, prove("secreT", prover::caller, caller, host)));
  CHECK_FALSE(is_proof(right, prove("secret", prover::host, caller, host)));
  CHECK_FALSE(is_proof(right, prove("secret", prover::caller, host, caller)));
  CHECK_FALSE(is_proof(std::span(right).first(31), right));
  CHECK_FALSE(is_proof({}, right));
}
