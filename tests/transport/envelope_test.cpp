#include <gradweave/transport/envelope.hpp>

#include <cstddef>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("open_envelope: takes what in_envelope made, and nothing else") {
  const std::vector<std::byte> body(5);
  const auto message = in_envelope(message_kind::answer, body);
  CHECK(message.size() == envelope_bytes + body.size());
  const auto head = std::span(message).first<envelope_bytes>();
  const auto opened = open_envelope(head, 100);
  REQUIRE(opened);
  CHECK(opened->kind == message_kind::answer);
  CHECK(opened->body_bytes == 5);
  CHECK_FALSE(open_envelope(head, 4));
  auto broken = message;
  broken[3] ^= std::byte{1};
  CHECK_FALSE(open_envelope(std::span(broken).first<envelope_bytes>(), 100));
}
