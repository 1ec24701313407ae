#include <gradweave/transport/control_frames.hpp>

#include <algorithm>
#include <random>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

std::vector<std::byte> frame(frame_type type, const std::vector<std::byte>& body) {
  const auto header = frame_header(type, body.size());
  std::vector<std::byte> whole(header.begin(), header.end());
  whole.insert(whole.end(), body.begin(), body.end());
  return whole;
}

std::vector<std::byte> message_of(int value) { return std::vector<std::byte>(64, static_cast<std::byte>(value)); }

/// Feeds `bytes` in steps of `step`; false once they are refused.
bool feed(frame_decoder& decoder, std::span<const std::byte> bytes, std::size_t step) {
  while (!bytes.empty()) {
    const auto room = decoder.room();
    const std::size_t count = std::min({step, bytes.size(), room.size()});
    if (count == 0) {
      return true;
    }
    std::copy_n(bytes.begin(), count, room.begin());
    if (!decoder.commit(count)) {
      return false;
    }
    bytes = bytes.subspan(count);
  }
  return true;
}

}  // namespace

TEST_CASE("frame_decoder: messages and failures come out in order, however they are cut") {
  std::vector<std::byte> stream = frame(frame_type::message, message_of(1));
  for (const auto& next : {frame(frame_type::message, message_of(2)),
                           frame(frame_type::failure, encode_failure({errc::aborted, 4, -1, -1, {}, "why"}))}) {
    stream.insert(stream.end(), next.begin(), next.end());
  }
  for (const std::size_t step : {1U, 7U, 64U, 1000U}) {
    frame_decoder decoder;
    CHECK(feed(decoder, stream, step));
    control_message message;
    CHECK(decoder.take(message));
    CHECK(message[63] == std::byte{1});
    CHECK(decoder.take(message));
    CHECK(message[0] == std::byte{2});
    CHECK_FALSE(decoder.take(message));
    const auto told = decoder.take_failure();
    REQUIRE(told);
    CHECK(told->rank == 4);
    CHECK_FALSE(decoder.take_failure());
  }
}

TEST_CASE("frame_decoder: takes no more than it has room for, and goes on once messages are taken") {
  frame_decoder decoder;
  std::vector<std::byte> stream;
  for (int i = 0; i < 200; ++i) {
    const auto next = frame(frame_type::message, message_of(i));
    stream.insert(stream.end(), next.begin(), next.end());
  }
  std::span<const std::byte> left(stream);
  int taken = 0;
  while (taken < 200) {
    const std::size_t count = std::min(left.size(), decoder.room().size());
    std::copy_n(left.begin(), count, decoder.room().begin());
    REQUIRE(decoder.commit(count));
    left = left.subspan(count);
    control_message message;
    REQUIRE(decoder.take(message));
    CHECK(message[0] == static_cast<std::byte>(taken++));
  }
}

TEST_CASE("frame_decoder: unknown types, wrong lengths and what claims to be huge are refused at once") {
  for (std::vector<std::byte> header :
       {std::vector<std::byte>{std::byte{3}}, std::vector<std::byte>{std::byte{1}, std::byte{1}},
        std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{63}},
        std::vector<std::byte>{std::byte{2}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{255}, std::byte{255},
                               std::byte{255}, std::byte{255}}}) {
    header.resize(frame_header_bytes);
    frame_decoder decoder;
    CHECK_FALSE(feed(decoder, header, 8));
  }
}

TEST_CASE("frame_decoder: two failures are given in order, and a third one is refused, taken or not") {
  const auto first = frame(frame_type::failure, encode_failure({errc::aborted, 4, -1, -1, {}, "first"}));
  const auto second = frame(frame_type::failure, encode_failure({errc::aborted, 5, -1, -1, {}, "second"}));
  for (const bool is_taken : {false, true}) {
    frame_decoder decoder;
    REQUIRE(feed(decoder, first, 4096));
    auto told = is_taken ? decoder.take_failure() : std::nullopt;
    REQUIRE(feed(decoder, second, 4096));
    CHECK_FALSE(feed(decoder, first, 4096));
    told = is_taken ? told : decoder.take_failure();
    REQUIRE(told);
    CHECK(told->detail == "first");
    told = decoder.take_failure();
    REQUIRE(told);
    CHECK(told->detail == "second");
    CHECK_FALSE(decoder.take_failure());
  }
}

TEST_CASE("frame_decoder: lives through noise") {
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    frame_decoder decoder;
    std::vector<std::byte> noise(random() % 500);
    for (std::byte& each : noise) {
      each = static_cast<std::byte>(random() % 4);
    }
    feed(decoder, noise, 1 + random() % 90);
  }
}
