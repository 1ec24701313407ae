#include <gradweave/transport/in_process.hpp>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {
std::vector<std::byte> numbered(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  }
  return bytes;
}
}  // namespace

TEST_CASE("in_process_transport: takes what fits, and the rest once there is room") {
  auto ends = in_process_transport::connect(2);
  const auto sent = numbered(1 << 20);
  std::vector<std::byte> received(sent.size());
  std::size_t out = 0;
  std::size_t in = 0;
  std::size_t refusals = 0;
  while (in < sent.size()) {
    const std::size_t taken = ends[0].try_send(1, std::span(sent).subspan(out));
    refusals += taken == 0 ? 1 : 0;
    out += taken;
    in += ends[1].try_receive(0, std::span(received).subspan(in, std::min<std::size_t>(sent.size() - in, 1001)));
  }
  CHECK(received == sent);
  CHECK(refusals > 0);
  CHECK(ends[0].payload_bytes_sent() == sent.size());
  CHECK(ends[1].payload_bytes_sent() == 0);
}

TEST_CASE("in_process_transport: a closed end is seen only after everything that it sent") {
  auto ends = in_process_transport::connect(2);
  const auto sent = numbered(10);
  {
    in_process_transport leaving = std::move(ends[0]);
    leaving.try_send(1, sent);
    leaving.try_send_control(1, control_message{});
  }
  CHECK_FALSE(ends[1].peer_closed(0));
  std::vector<std::byte> received(10);
  CHECK(ends[1].try_receive(0, received) == 10);
  CHECK(received == sent);
  CHECK_FALSE(ends[1].peer_closed(0));
  control_message message;
  CHECK(ends[1].try_receive_control(0, message));
  CHECK(ends[1].peer_closed(0));
}

TEST_CASE("in_process_transport: wait ends on an event that came before it, on one that comes later, and on time") {
  auto ends = in_process_transport::connect(2);
  const std::uint64_t seen = ends[0].events();
  ends[1].try_send_control(0, control_message{});
  ends[0].wait(seen, std::chrono::steady_clock::now() + 1h);

  const std::uint64_t later = ends[0].events();
  std::thread peer([&] {
    std::this_thread::sleep_for(20ms);
    ends[1].try_send_control(0, control_message{});
  });
  ends[0].wait(later, std::chrono::steady_clock::now() + 1h);
  CHECK(ends[0].events() != later);
  peer.join();

  const auto until = std::chrono::steady_clock::now() + 20ms;
  ends[0].wait(ends[0].events(), until);
  CHECK(std::chrono::steady_clock::now() >= until);
}

TEST_CASE("in_process_transport: the first abort wins, from any thread, and wakes all") {
  auto ends = in_process_transport::connect(3);
  CHECK(ends[0].aborted() == nullptr);
  const std::uint64_t seen = ends[2].events();
  std::thread waiting([&] { ends[2].wait(seen, std::chrono::steady_clock::now() + 1h); });
  CHECK(ends[0].abort({errc::aborted, 0, -1, -1, {}, "first"}).detail == "first");
  CHECK(ends[1].abort({errc::aborted, 1, -1, -1, {}, "second"}).detail == "first");
  waiting.join();
  REQUIRE(ends[2].aborted() != nullptr);
  CHECK(ends[2].aborted()->detail == "first");
}

TEST_CASE("in_process_transport: a full mailbox refuses") {
  auto ends = in_process_transport::connect(2);
  std::size_t accepted = 0;
  while (ends[0].try_send_control(1, control_message{})) {
    ++accepted;
  }
  CHECK(accepted == detail::in_process_network::link::mailbox_capacity);
  control_message message;
  CHECK(ends[1].try_receive_control(0, message));
  CHECK(ends[0].try_send_control(1, message));
}

TEST_CASE("in_process_transport: a job of no ranks is refused") {
  CHECK_THROWS_AS(in_process_transport::connect(0), contract_violation);
}

TEST_CASE("in_process_transport: memory that it allocated can be lent, and outlives its owner while it is") {
  auto ends = in_process_transport::connect(2);
  std::vector<std::byte> other(64);
  {
    const auto memory = ends[0].allocate(64);
    const extent own{memory.data() + 8, 56, 0};
    const extent beyond{memory.data() + 8, 57, 0};
    const extent foreign{other.data(), other.size(), 0};
    CHECK(ends[0].can_lend({&own, 1}));
    CHECK_FALSE(ends[0].can_lend({&beyond, 1}));
    CHECK_FALSE(ends[0].can_lend({&foreign, 1}));
    CHECK_FALSE(ends[1].can_lend({&own, 1}));
    ends[0].lend(1, {&own, 1});
    CHECK_FALSE(ends[0].given_back(1));
  }
  CHECK(ends[0].allocate(1).data() != nullptr);  // forgets what nobody owns
  const extent lent = ends[1].borrowed(0)[0];
  std::fill_n(lent.memory, lent.bytes, std::byte{3});  // a sanitizer would tell
  ends[1].give_back(0);
  CHECK(ends[0].given_back(1));
}
