#include <gradweave/testing/simulated_stream.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <span>

#include <doctest/doctest.h>

using gradweave::testing::detail::simulated_stream;
using namespace std::chrono_literals;

namespace {
constexpr std::array<std::byte, 5> five = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
}

TEST_CASE("simulated_stream: takes what there is room for, and gives what has arrived, in order") {
  simulated_stream stream(4);
  std::array<std::byte, 8> room{};
  CHECK(stream.write(five) == 4);
  CHECK(stream.write(five) == 0);
  CHECK(stream.read(room) == 0);
  CHECK(stream.arrive(3) == 3);
  CHECK(stream.read(std::span(room).first(2)) == 2);
  CHECK(room[0] == five[0]);
  CHECK(room[1] == five[1]);
  CHECK(stream.write(std::span(five).subspan(4)) == 1);
  CHECK(stream.arrive(5) == 2);
  CHECK(stream.read(room) == 3);
  CHECK(room[0] == five[2]);
  CHECK(room[2] == five[4]);
}

TEST_CASE("simulated_stream: what is cut off does not arrive, and the end is seen behind what does") {
  simulated_stream stream(100);
  std::array<std::byte, 8> room{};
  stream.write(five);
  stream.arrive(1);
  stream.cut(2);
  stream.close();
  CHECK(stream.write(five) == 0);
  CHECK(stream.arrive(5) == 2);
  stream.arrive_end();
  CHECK_FALSE(stream.at_end());
  CHECK(stream.read(room) == 3);
  CHECK(stream.at_end());
}

TEST_CASE("simulated_stream: nothing overtakes what was sent earlier") {
  simulated_stream stream(100);
  const gradweave::deadline zero{};
  CHECK(stream.arrival_after(zero + 5ms) == zero + 5ms);
  CHECK(stream.arrival_after(zero + 2ms) == zero + 5ms);
  CHECK(stream.arrival_after(zero + 7ms) == zero + 7ms);
}
