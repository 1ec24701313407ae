#include <gradweave/transport/asio_link.hpp>

#include <doctest/doctest.h>

#include "tests/support/tcp.hpp"

using namespace gradweave;

TEST_CASE("asio_link: the route names both ends") {
  const auto ends = tests::connect_tcp(2);
  CHECK(ends[0].route(1).find("127.0.0.1 port ") != std::string::npos);
  CHECK(ends[0].route(1).find(" to 127.0.0.1 port ") != std::string::npos);
}
