#include <gradweave/transport/readiness.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include <doctest/doctest.h>

using gradweave::detail::readiness;

namespace {

/// Two ends of a stream. `near` does not block.
struct ends {
  int near = -1;
  int far = -1;

  ends() {
    std::array<int, 2> made{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, made.data()) == 0);
    near = made[0];
    far = made[1];
  }
  ends(const ends&) = delete;
  ~ends() {
    ::close(near);
    ::close(far);
  }

  void send(std::size_t bytes) const { REQUIRE(::write(far, "abcdefgh", bytes) == static_cast<ssize_t>(bytes)); }
};

/// Which connections changed, waiting for at most `milliseconds`.
std::vector<std::size_t> changes(readiness& ready, int milliseconds = 0) {
  std::vector<std::size_t> changed;
  ready.look(milliseconds);
  ready.take_in([&](std::size_t connection) { changed.push_back(connection); });
  ready.begin_round();
  return changed;
}

}  // namespace

TEST_CASE("readiness: a connection that was drained is worth reading again once more has come") {
  const ends first, second;
  readiness ready(2);
  ready.watch(first.near, 0);
  ready.watch(second.near, 1);
  changes(ready);
  for (const std::size_t connection : {0U, 1U}) {
    CHECK(ready.is_worth_reading(connection));  // something may have come before it was watched
    ready.drained(connection);
    CHECK_FALSE(ready.is_worth_reading(connection));
  }
  second.send(3);
  CHECK(changes(ready, 10'000) == std::vector<std::size_t>{1});
  CHECK_FALSE(ready.is_worth_reading(0));
  CHECK(ready.is_worth_reading(1));
  CHECK(changes(ready).empty());  // told once
  CHECK(ready.is_worth_reading(1));
  ready.drained(1);
  CHECK_FALSE(ready.is_worth_reading(1));
  ready.left_unread(1);
  CHECK(ready.is_worth_reading(1));
}

TEST_CASE("readiness: who tries again and again without looking is told to read") {
  const ends only;
  readiness ready(1);
  ready.watch(only.near, 0);
  changes(ready);
  ready.drained(0);
  CHECK_FALSE(ready.is_worth_reading(0));
  ready.begin_round();
  CHECK_FALSE(ready.is_worth_reading(0));
  ready.begin_round();
  CHECK(ready.is_worth_reading(0));
}

TEST_CASE("readiness: the end of a connection that came with the last bytes is not forgotten by draining it") {
  const ends only;
  readiness ready(1);
  ready.watch(only.near, 0);
  changes(ready);
  ready.drained(0);
  only.send(2);
  ::shutdown(only.far, SHUT_WR);
  CHECK(changes(ready, 10'000) == std::vector<std::size_t>{0});
  ready.drained(0);
  CHECK(ready.is_worth_reading(0));
}

TEST_CASE("readiness: a bell ends the look and is no connection") {
  const ends bell;
  readiness ready(1);
  ready.watch_bell(bell.near);
  changes(ready);
  bell.send(1);
  CHECK(ready.look(10'000));
  CHECK(changes(ready).empty());
}
