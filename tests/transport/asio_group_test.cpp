#include <gradweave/transport/asio_group.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/tls.hpp>

#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

namespace {

/// Collects in memory, for the ranks of one process, and waits for all as a collective would.
class meeting_table {
 public:
  explicit meeting_table(int size) : size_(static_cast<std::size_t>(size)) {}

  void gather(int rank, std::span<const std::byte> own, std::span<std::byte> all) {
    std::unique_lock lock(mutex_);
    const std::size_t round = arrivals_ / size_;
    rounds_.resize(std::max(rounds_.size(), round + 1));
    rounds_[round].resize(all.size());
    std::copy(own.begin(), own.end(), rounds_[round].begin() + rank * static_cast<std::ptrdiff_t>(own.size()));
    ++arrivals_;
    come_.notify_all();
    come_.wait(lock, [&] { return arrivals_ >= (round + 1) * size_; });
    std::copy(rounds_[round].begin(), rounds_[round].end(), all.begin());
  }

 private:
  std::size_t size_;
  std::mutex mutex_;
  std::condition_variable come_;
  std::size_t arrivals_ = 0;
  std::vector<std::vector<std::byte>> rounds_;
};

/// What each of three ranks is told that connect as a group, while one of them does `instead` once all know each other's
/// ports.
template <class Instead>
std::vector<std::optional<failure>> told_without(int lost, Instead&& instead) {
  auto ends = tests::connect_tcp(3, "a secret");
  meeting_table table(3);
  std::vector<std::optional<failure>> told(3);
  tests::on_threads(3, [&](int rank) {
    asio_transport end = std::move(ends[static_cast<std::size_t>(rank)]);
    const std::vector<int> members = {2, 0, 1};
    int gathers = 0;
    try {
      (void)end.subgroup(members, [&](std::span<const std::byte> own, std::span<std::byte> all) {
        table.gather(rank, own, all);
        if (++gathers == 1 && rank == lost) {
          instead(end);
        }
      });
    } catch (const sync_error& error) {
      told[static_cast<std::size_t>(rank)] = rank == lost ? error.cause() : end.abort(error.cause());  // as split does
    }
  });
  return told;
}

}  // namespace

TEST_CASE("asio_group: ranks of a group talk in its numbers, with TLS too, and one alone needs no connection") {
  const testing::watchdog guard("asio_group: talk");
  auto ends = tests::connect_tcp<tls_stream>(4, "a secret");
  meeting_table table(4);
  tests::on_threads(4, [&](int rank) {
    auto& end = ends[static_cast<std::size_t>(rank)];
    const std::vector<int> members = rank == 2 ? std::vector<int>{2} : std::vector<int>{3, 0, 1};
    auto group = end.subgroup(members, [&](auto own, auto all) { table.gather(rank, own, all); });
    REQUIRE(group.has_value());
    CHECK(group->size() == static_cast<int>(members.size()));
    CHECK(members[static_cast<std::size_t>(group->rank())] == rank);
    for (int peer = 0; peer < group->size(); ++peer) {
      if (peer != group->rank()) {
        const std::byte own{static_cast<unsigned char>(rank)};
        CHECK(group->try_send(peer, {&own, 1}) == 1);
        std::byte theirs{99};
        while (group->try_receive(peer, {&theirs, 1}) == 0) {
          group->wait(group->events(), std::chrono::steady_clock::now() + 1s);
        }
        CHECK(static_cast<int>(theirs) == members[static_cast<std::size_t>(peer)]);
      }
    }
    std::byte none{};
    table.gather(rank, {&none, 0}, {&none, 0});  // what was sent is read before anybody goes
  });
}

TEST_CASE("asio_group: a rank that is lost while a group connects is named at once") {
  const testing::watchdog guard("asio_group: lost");
  for (const int lost : {0, 2}) {  // who is called, and who calls
    const auto told = told_without(lost, [&](asio_transport& end) {
      {
        const asio_transport leaving = std::move(end);
      }
      throw sync_error({errc::internal, lost, -1, -1, {}, "it is gone"});
    });
    for (int rank = 0; rank < 3; ++rank) {
      const auto& cause = told[static_cast<std::size_t>(rank)];
      REQUIRE(cause.has_value());
      CHECK_MESSAGE((rank == lost || (cause->code == errc::peer_lost && cause->rank == lost)), to_string(*cause));
    }
  }
}

TEST_CASE("asio_group: a rank that fails while a group connects is heard by those who wait for it") {
  const testing::watchdog guard("asio_group: fails");
  const auto told = told_without(2, [](asio_transport& end) {
    const failure cause{errc::aborted, 2, -1, -1, {}, "no coffee"};
    end.tell(cause);
    throw sync_error(cause);
  });
  for (const auto& cause : told) {
    REQUIRE(cause.has_value());
    CHECK_MESSAGE(cause->detail == "no coffee", to_string(*cause));
  }
}
