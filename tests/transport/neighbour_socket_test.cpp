#include <gradweave/transport/neighbour_socket.hpp>

#include <unistd.h>

#include <chrono>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {
struct numbered {
  int number = 0;
};
auto soon() { return std::chrono::steady_clock::now() + 5s; }
}  // namespace

TEST_CASE("neighbour_socket: hands over values and descriptors") {
  const neighbour_listener listener(4);
  const auto caller = neighbour_socket::connect(listener.name());
  REQUIRE(caller);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const descriptor out(ends[1]);
  REQUIRE(caller->send(numbered{7}, {ends[0], ends[1]}, soon()));
  REQUIRE(caller->send(numbered{8}, {}, soon()));
  ::close(ends[0]);
  const auto host = listener.accept(soon());
  REQUIRE(host);
  std::vector<descriptor> came;
  const auto first = host->receive<numbered>(came, soon());
  REQUIRE(first);
  CHECK(first->number == 7);
  REQUIRE(came.size() == 2);
  CHECK(::write(out.number(), "x", 1) == 1);
  char read = 0;
  CHECK(::read(came[0].number(), &read, 1) == 1);
  CHECK(read == 'x');
  const auto second = host->receive<numbered>(came, soon());
  REQUIRE(second);
  CHECK(second->number == 8);
  CHECK(came.empty());
}

TEST_CASE("neighbour_socket: nobody there, nothing sent, and a message of another size are no messages") {
  CHECK_FALSE(neighbour_socket::connect({}));
  neighbour_name gone;
  {
    const neighbour_listener listener(1);
    gone = listener.name();
    CHECK_FALSE(listener.accept(std::chrono::steady_clock::now()));
    const auto caller = neighbour_socket::connect(gone);
    const auto host = listener.accept(soon());
    REQUIRE(host);
    std::vector<descriptor> came;
    CHECK_FALSE(host->receive<numbered>(came, std::chrono::steady_clock::now()));
    REQUIRE(caller->send('x', {}, soon()));
    CHECK_FALSE(host->receive<numbered>(came, soon()));
  }
  CHECK_FALSE(neighbour_socket::connect(gone));
}

TEST_CASE("neighbour_socket: who takes nothing makes the sender give up, and who is gone at once") {
  const neighbour_listener listener(1);
  const auto caller = neighbour_socket::connect(listener.name());
  auto host = listener.accept(soon());
  REQUIRE(host);
  int sent = 0;
  while (caller->send(numbered{sent}, {}, std::chrono::steady_clock::now())) {
    ++sent;
  }
  CHECK(sent > 10);
  host.reset();
  CHECK_FALSE(caller->send(numbered{}, {}, std::chrono::steady_clock::now() + 1000s));
}

TEST_CASE("neighbour_socket: what was sent is received also where the sender went without reading everything") {
  const neighbour_listener listener(1);
  const auto caller = neighbour_socket::connect(listener.name());
  auto host = listener.accept(soon());
  REQUIRE(host);
  REQUIRE(caller->send(numbered{1}, {}, soon()));  // never read
  REQUIRE(host->send(numbered{2}, {}, soon()));
  host.reset();
  std::vector<descriptor> came;
  const auto received = caller->receive<numbered>(came, soon());
  REQUIRE(received);
  CHECK(received->number == 2);
  CHECK_FALSE(caller->receive<numbered>(came, soon()));
}
