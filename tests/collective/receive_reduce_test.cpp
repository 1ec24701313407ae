#include <gradweave/collective/receive_reduce.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/transport/in_process.hpp>

using namespace gradweave;

TEST_CASE("reducing_receiver: adds what arrives in parts of elements, and takes no more than its range") {
  auto ends = in_process_transport::connect(2);
  std::vector<double> sent(100);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    sent[i] = static_cast<double>(i);
  }
  std::vector<double> sums(50, 1000.0);
  const extent whole{reinterpret_cast<std::byte*>(sums.data()), sums.size() * sizeof(double), 0};
  const buffer_range range{{&whole, 1}, 0, whole.bytes};
  reducing_receiver receiver(64 << 10);
  reduced_so_far done;
  const auto bytes = std::as_bytes(std::span(sent));
  std::size_t out = 0;
  bool complete = false;
  while (!complete) {
    out += ends[0].try_send(1, bytes.subspan(out, std::min<std::size_t>(13, bytes.size() - out)));
    complete = receiver.receive_rest(ends[1], 0, reduction_operation::sum, element_kind::float64, range, done);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    CHECK(sums[i] == 1000.0 + static_cast<double>(i));
  }
  CHECK(out >= whole.bytes);
  CHECK(done.partial_bytes == 0);
}
