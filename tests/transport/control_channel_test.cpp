#include <gradweave/transport/control_channel.hpp>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <span>

#include <doctest/doctest.h>

#include <gradweave/transport/failure_message.hpp>

using namespace gradweave;

namespace {

/// A pipe to oneself that moves few bytes a call.
struct pipe {
  std::deque<std::byte> bytes;
  std::size_t capacity = 10'000;
  std::size_t few = 7;
  bool closed = false;

  io_result write(std::span<const std::byte> from) {
    const std::size_t count = std::min({from.size(), few, capacity - bytes.size()});
    bytes.insert(bytes.end(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(count));
    return {count, false};
  }
  io_result read(std::span<std::byte> room) {
    const std::size_t count = std::min({room.size(), few, bytes.size()});
    std::copy_n(bytes.begin(), count, room.begin());
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return {count, count == 0 && closed};
  }
};

control_message message_of(int value) {
  control_message message;
  message.fill(static_cast<std::byte>(value));
  return message;
}

}  // namespace

TEST_CASE("control_channel: messages and failures arrive in order, whatever a call moves") {
  pipe line;
  control_channel channel;
  control_message in;
  CHECK_FALSE(channel.take(in, line));
  CHECK(channel.send(frame_type::message, message_of(1), line));
  CHECK(channel.send(frame_type::failure, encode_failure({errc::aborted, 3, -1, -1, {}, "why"}), line));
  CHECK(channel.send(frame_type::message, message_of(2), line));
  channel.receive(line);
  CHECK(channel.take(in, line));
  CHECK(in == message_of(1));
  CHECK(channel.take(in, line));
  CHECK(in == message_of(2));
  CHECK_FALSE(channel.has_message());
  const auto told = channel.take_failure();
  REQUIRE(told);
  CHECK(told->rank == 3);
}

TEST_CASE("control_channel: what finds no room waits; a message behind it is refused, a failure is not") {
  pipe line;
  line.capacity = 100;
  control_channel channel;
  control_message in;
  CHECK(channel.send(frame_type::message, message_of(1), line));
  CHECK(channel.send(frame_type::message, message_of(2), line));
  CHECK_FALSE(channel.send(frame_type::message, message_of(3), line));
  CHECK(channel.send(frame_type::failure, encode_failure({}), line));
  for (int i = 0; i < 4; ++i) {
    channel.receive(line);
    channel.flush(line);
  }
  CHECK(channel.take(in, line));
  CHECK(channel.take(in, line));
  CHECK(in == message_of(2));
  CHECK(channel.take_failure());
}

TEST_CASE("control_channel: it is closed once everything is read, or where something is no frame") {
  pipe line;
  control_channel channel;
  CHECK(channel.send(frame_type::message, message_of(1), line));
  line.closed = true;
  channel.receive(line);
  CHECK(channel.closed());
  CHECK(channel.has_message());

  pipe noise;
  control_channel other;
  noise.bytes.resize(20, std::byte{0xff});
  other.receive(noise);
  CHECK(other.closed());
}
