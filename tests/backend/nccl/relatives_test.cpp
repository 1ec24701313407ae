#include <gradweave/backend/nccl/relatives.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/emulated_cuda/control.hpp"

using gradweave::detail::nccl_communicator;
using gradweave::detail::nccl_relatives;

namespace {

std::shared_ptr<nccl_communicator> communicator() {
  return std::make_shared<nccl_communicator>(0, std::chrono::seconds(5));
}

}  // namespace

TEST_CASE("nccl relatives: launches take turns, each knows what came before, and one that fails keeps nobody") {
  const gradweave::testing::watchdog dog("nccl relatives: turns");
  const emulated_cuda::session session;
  nccl_relatives all(0);
  const auto one = communicator(), other = communicator();
  all.add(7, one);
  all.add(9, other);
  using turn = nccl_relatives::turn;
  std::optional<turn> first(std::in_place, all, 7), fails(std::in_place, all, 9), third(std::in_place, all, 9);
  CHECK(first->before()[0].launches == 0);
  CHECK(fails->before()[0].communicator == 7);
  CHECK(third->before()[0].launches == 1);
  first->await(nullptr);
  std::vector<int> order;
  std::thread beside([&] {
    third->await(nullptr);
    order.push_back(3);
  });
  fails.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  order.push_back(1);
  first.reset();
  beside.join();
  CHECK(order == std::vector{1, 3});
  third.reset();
  turn(all, 7).await(nullptr);
}

TEST_CASE("nccl relatives: all are given up at once, also who comes later, with the first story") {
  const emulated_cuda::session session;
  nccl_relatives all(0);
  const auto one = communicator();
  all.add(1, one);
  all.throw_if_given_up();
  all.give_up({gradweave::errc::aborted, 3, -1, -1, {}, "first"});
  all.give_up({gradweave::errc::aborted, 4, -1, -1, {}, "second"});
  CHECK(one->is_flagged());
  const auto late = communicator();
  all.add(2, late);
  CHECK(late->is_flagged());
  CHECK_THROWS_WITH_AS(all.throw_if_given_up(), doctest::Contains("first"), gradweave::sync_error);
}
