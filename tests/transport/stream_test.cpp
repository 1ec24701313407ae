#include <gradweave/transport/stream.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <doctest/doctest.h>

#include "tests/support/streams.hpp"

using namespace gradweave;

TEST_CASE("tcp_stream: what is written is read, and the end is seen once all of it has been") {
  boost::asio::io_context context;
  auto [near, far] = tests::socket_pair(context);
  tcp_stream a(std::move(near), stream_side::caller, "", {}), b(std::move(far), stream_side::host, "", {});
  std::array<std::byte, 8> room{};
  CHECK(b.read(room).bytes == 0);
  CHECK_FALSE(b.at_end());
  const std::array sent{std::byte{1}, std::byte{2}};
  CHECK(b.read(room).drained);
  CHECK(a.write(sent).bytes == 2);
  a.shut_down();
  CHECK(tests::read_all(b) == std::vector(sent.begin(), sent.end()));
  CHECK(b.at_end());
  CHECK(b.read(room).closed);
}

TEST_CASE("tcp_stream: pieces are written and read in order, in one go") {
  boost::asio::io_context context;
  auto [near, far] = tests::socket_pair(context);
  tcp_stream a(std::move(near), stream_side::caller, "", {}), b(std::move(far), stream_side::host, "", {});
  const std::array first{std::byte{1}, std::byte{2}}, second{std::byte{3}, std::byte{4}};
  const std::array<std::span<const std::byte>, 3> out{first, {}, second};
  CHECK(a.write_pieces(out).bytes == 4);
  a.shut_down();
  std::byte one{}, three[3]{};
  const std::array<std::span<std::byte>, 2> in{std::span(&one, 1), std::span(three)};
  io_result done;
  while (done.bytes == 0) {
    done = b.read_pieces(in);
  }
  CHECK(done.bytes == 4);
  CHECK((one == std::byte{1} && three[0] == std::byte{2} && three[1] == std::byte{3} && three[2] == std::byte{4}));
  CHECK(b.read_pieces(in).closed);
}
