#include <gradweave/collective/executor.hpp>

#include <cstring>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/collective/ring.hpp>
#include <gradweave/transport/in_process.hpp>

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t piece_bytes = std::size_t{64} << 10;

/// A transport that moves at most a few bytes a call, so that elements arrive in parts.
class stuttering_transport {
 public:
  explicit stuttering_transport(in_process_transport inner) : inner_(std::move(inner)) {}
  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  std::size_t try_send(int peer, std::span<const std::byte> bytes) { return inner_.try_send(peer, few(bytes)); }
  std::size_t try_receive(int peer, std::span<std::byte> room) { return inner_.try_receive(peer, few(room)); }
  bool try_send_control(int peer, const control_message& m) { return inner_.try_send_control(peer, m); }
  bool try_receive_control(int peer, control_message& m) { return inner_.try_receive_control(peer, m); }
  bool peer_closed(int peer) { return inner_.peer_closed(peer); }
  failure abort(failure cause) { return inner_.abort(std::move(cause)); }
  const failure* aborted() { return inner_.aborted(); }
  std::uint64_t events() { return inner_.events(); }
  void wait(std::uint64_t seen, deadline until) { inner_.wait(seen, until); }
  deadline now() const { return inner_.now(); }
  std::uint64_t payload_bytes_sent() const { return inner_.payload_bytes_sent(); }

 private:
  template <class Byte>
  std::span<Byte> few(std::span<Byte> bytes) {
    turn_ = turn_ % 7 + 1;
    return bytes.first(std::min(bytes.size(), turn_));
  }
  in_process_transport inner_;
  std::size_t turn_ = 0;
};

template <class Executor>
void finish(Executor& run) {
  while (!run.poll()) {
    run.wait();
  }
}

}  // namespace

TEST_CASE("executor: reduces right when elements arrive in parts and buffers lie in many extents") {
  constexpr int size = 3;
  constexpr std::size_t count = 777;
  auto ends = in_process_transport::connect(size);
  std::vector<std::vector<double>> results(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      executor run(stuttering_transport(std::move(ends[static_cast<std::size_t>(rank)])), 30s, piece_bytes);
      std::vector<double> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<double>(i * static_cast<std::size_t>(rank + 1));
      }
      std::vector<extent> pieces;
      for (std::size_t begin = 0; begin < count; begin += 10) {  // not merged on purpose
        const std::size_t n = std::min<std::size_t>(10, count - begin);
        pieces.push_back(
            {reinterpret_cast<std::byte*>(values.data() + begin), n * sizeof(double), begin * sizeof(double)});
      }
      std::vector<std::size_t> cut;
      cut_evenly(count, size, cut);
      schedule plan;
      ring_all_reduce({rank, size}, cut, plan);
      for (int repeat = 0; repeat < 3; ++repeat) {
        run.start({.operation = collective::all_reduce, .kind = element_kind::float64, .data = pieces}, plan);
        finish(run);
      }
      results[static_cast<std::size_t>(rank)] = values;
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(results[0][i] == static_cast<double>(i * 6 * 9));  // 1 + 2 + 3, summed three times over
    CHECK(results[1][i] == results[0][i]);
    CHECK(results[2][i] == results[0][i]);
  }
}

TEST_CASE("executor: a timeout names the rank that did not enter the collective") {
  auto ends = in_process_transport::connect(3);
  std::vector<failure> causes(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {  // rank 1 never comes, but stays connected
    threads.emplace_back([&, rank] {
      executor run(std::move(ends[static_cast<std::size_t>(rank)]), 200ms, piece_bytes);
      std::vector<float> values(96);
      const extent all{reinterpret_cast<std::byte*>(values.data()), 96 * sizeof(float), 0};
      std::vector<std::size_t> cut;
      cut_evenly(96, 3, cut);
      schedule plan;
      ring_all_reduce({rank, 3}, cut, plan);
      run.start({.operation = collective::all_reduce, .kind = element_kind::float32, .data = {&all, 1}}, plan);
      try {
        finish(run);
      } catch (const sync_error& error) {
        causes[static_cast<std::size_t>(rank)] = run.transport().abort(error.cause());
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  for (const int rank : {0, 2}) {
    CHECK(causes[static_cast<std::size_t>(rank)].code == errc::timed_out);
    CHECK(causes[static_cast<std::size_t>(rank)].rank == 1);
    CHECK(causes[static_cast<std::size_t>(rank)].detail.find("did not enter all_reduce") != std::string::npos);
  }
}

TEST_CASE("executor: a peer that entered and is gone before it has taken everything is lost to its sender") {
  auto ends = in_process_transport::connect(2);
  std::vector<float> values(1'000'000);  // more than the transport holds
  const extent whole{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
  const collective_request request{
      .operation = collective::broadcast, .kind = element_kind::float32, .data = {&whole, 1}};
  schedule sending;
  sending.send(1, {operand_buffer::data, 0, values.size()});
  executor sender(std::move(ends[0]), 20s, piece_bytes);
  sender.start(request, sending);
  {
    schedule receiving;
    receiving.receive(0, {operand_buffer::data, 0, values.size()});
    executor receiver(std::move(ends[1]), 20s, piece_bytes);
    receiver.start(request, receiving);
    CHECK_FALSE(receiver.poll());
    CHECK_FALSE(sender.poll());
  }
  try {
    const auto began = std::chrono::steady_clock::now();
    while (!sender.poll() && std::chrono::steady_clock::now() - began < 5s) {
    }
    FAIL("the sender never finds out");
  } catch (const sync_error& error) {
    CHECK(error.code() == errc::peer_lost);
    CHECK(error.rank() == 1);
  }
}

TEST_CASE("executor: a timeout names the rank that has entered and takes no more") {
  auto ends = in_process_transport::connect(2);
  std::vector<float> values(1'000'000);  // more than the transport holds
  const extent whole{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
  const collective_request request{
      .operation = collective::broadcast, .kind = element_kind::float32, .data = {&whole, 1}};
  schedule sending;
  sending.send(1, {operand_buffer::data, 0, values.size()});
  schedule receiving;
  receiving.receive(0, {operand_buffer::data, 0, values.size()});
  executor receiver(std::move(ends[1]), 20s, piece_bytes);
  receiver.start(request, receiving);
  CHECK_FALSE(receiver.poll());
  executor sender(std::move(ends[0]), 20ms, piece_bytes);
  sender.start(request, sending);
  try {
    finish(sender);
    FAIL("there was room for everything");
  } catch (const sync_error& error) {
    CHECK(error.code() == errc::timed_out);
    CHECK(error.rank() == 1);
    CHECK(error.cause().detail.find("rank 1 stopped receiving in broadcast") == 0);
  }
}

TEST_CASE("executor: a second start before the first is complete is a contract violation") {
  auto ends = in_process_transport::connect(2);
  executor run(std::move(ends[0]), 1s, piece_bytes);
  schedule plan;
  plan.send(1, {operand_buffer::scratch, 0, 1});
  run.start({}, plan);
  CHECK_FALSE(run.poll());
  CHECK_THROWS_AS(run.start({}, plan), contract_violation);
}
