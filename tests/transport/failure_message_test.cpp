#include <gradweave/transport/failure_message.hpp>

#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
const failure whole{errc::gradient_missing, 3, 17, -1, {"w", "b"}, "not ready", 42};
}

TEST_CASE("encode_failure: a failure survives the way, whatever its fields are") {
  for (const failure& cause : {whole, failure{}, failure{errc::peer_lost, -1, -1, -1, {}, "", 0}}) {
    const auto read = decode_failure(encode_failure(cause));
    REQUIRE(read);
    CHECK(to_string(*read) == to_string(cause));
    CHECK(read->code == cause.code);
    CHECK(read->collectives_completed == cause.collectives_completed);
  }
}

TEST_CASE("encode_failure: keeps within its bound") {
  failure large = whole;
  large.detail = std::string(1'000'000, 'x');
  large.slots.assign(1000, std::string(1000, 'y'));
  const auto message = encode_failure(large);
  CHECK(message.size() <= failure_message_bytes_max);
  CHECK(decode_failure(message));
}

TEST_CASE("decode_failure: refuses every cut, every addition, and lives through noise") {
  const auto message = encode_failure(whole);
  for (std::size_t length = 0; length < message.size(); ++length) {
    CHECK_FALSE(decode_failure(std::span(message).first(length)));
  }
  auto longer = message;
  longer.push_back(std::byte{0});
  CHECK_FALSE(decode_failure(longer));
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    auto noise = message;
    for (int changes = 0; changes < 3; ++changes) {
      noise[random() % noise.size()] = static_cast<std::byte>(random());
    }
    (void)decode_failure(noise);
  }
}

TEST_CASE("decode_failure: refuses lists and texts longer than any that are sent") {
  const auto with = [](std::size_t slots, std::size_t slot_bytes, std::size_t detail_bytes) {
    byte_writer out;
    out.number(static_cast<std::uint32_t>(errc::aborted));
    out.number(std::uint32_t{1});
    for (int i = 0; i < 3; ++i) {
      out.number(std::uint64_t{1});
    }
    out.number(static_cast<std::uint32_t>(slots));
    for (std::size_t i = 0; i < slots; ++i) {
      out.text(std::string(slot_bytes, 's'), slot_bytes);
    }
    out.text(std::string(detail_bytes, 'd'), detail_bytes);
    return std::vector<std::byte>(out.bytes().begin(), out.bytes().end());
  };
  CHECK(decode_failure(with(8, 128, 2048)));
  CHECK_FALSE(decode_failure(with(9, 0, 0)));
  CHECK_FALSE(decode_failure(with(1, 129, 0)));
  CHECK_FALSE(decode_failure(with(0, 0, 2049)));
}

TEST_CASE("comes_before: what a rank did is told before what others missed, then the earlier, then the lower rank") {
  const failure aborted{errc::aborted, 2, -1, -1, {}, "", 9};
  const failure lost{errc::peer_lost, 0, -1, -1, {}, "", 3};
  const failure late{errc::timed_out, 0, -1, -1, {}, "", 1};
  CHECK(comes_before(aborted, lost));
  CHECK(comes_before(lost, late));
  CHECK(comes_before(failure{errc::aborted, 5, -1, -1, {}, "", 8}, aborted));
  CHECK(comes_before(failure{errc::aborted, 1, -1, -1, {}, "", 9}, aborted));
  CHECK(comes_before(late, failure{errc::timed_out, -1, -1, -1, {}, "", late.collectives_completed - 1}));
  CHECK_FALSE(comes_before(aborted, aborted));
}

TEST_CASE("comes_before: of two causes that differ at all one comes first") {
  failure a{errc::peer_lost, 1, 2, 0, {"slot"}, "gone (port 1)"};
  failure b = a;
  CHECK_FALSE(comes_before(a, b));
  b.detail = "gone (port 2)";
  CHECK(comes_before(a, b) != comes_before(b, a));
}
