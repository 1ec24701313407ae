#include <gradweave/collective/scattered.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/asio.hpp>
#include <gradweave/transport/in_process.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;

namespace {

/// Every second byte of `memory`, so that there are more pieces than go in one call.
std::vector<extent> every_second(std::vector<std::byte>& memory) {
  std::vector<extent> buffer;
  for (std::size_t i = 0; i < memory.size(); i += 2) {
    append_extent(buffer, memory.data() + i, 1);
  }
  return buffer;
}

template <class Transport>
void check(std::vector<Transport> ends) {
  const testing::watchdog guard("scattered");
  std::vector<std::byte> sent(200), received(200);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<std::byte>(i);
  }
  const auto from = every_second(sent), to = every_second(received);
  std::size_t out = 0, in = 0;
  while (in != 100) {
    out += out == 100 ? 0 : send_some(ends[0], 1, from, out, 100 - out);
    in += receive_some(ends[1], 0, to, in, 100 - in);
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CHECK(received[i] == (i % 2 == 0 ? sent[i] : std::byte{0}));
  }
}

}  // namespace

TEST_CASE("send_some and receive_some: scattered memory arrives where it belongs, piece by piece or many at once") {
  static_assert(!transport_takes_pieces<in_process_transport> && transport_takes_pieces<asio_transport>);
  check(in_process_transport::connect(2));
  check(tests::connect_tcp(2));
}
