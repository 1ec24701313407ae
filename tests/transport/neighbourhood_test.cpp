#include <gradweave/transport/neighbourhood.hpp>

#include <sys/eventfd.h>

#include <cstring>
#include <vector>

#include <doctest/doctest.h>

#include "tests/support/gathering.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// What all ranks find; before the first exchange is over, `disturb` is called with what they exchange.
template <class Disturb>
std::vector<neighbourhood> find_all(int size, Disturb&& disturb) {
  std::vector<neighbourhood> found(static_cast<std::size_t>(size));
  gathering together(size);
  on_threads(size, [&](int rank) {
    const descriptor doorbell(::eventfd(0, EFD_CLOEXEC));
    bool first = true;
    found[static_cast<std::size_t>(rank)] =
        find_neighbours(rank, size, doorbell.number(), [&](std::span<const std::byte> own, std::span<std::byte> all) {
          together.gather(rank, own, all);
          if (std::exchange(first, false) && rank == size - 1) {
            disturb(all);
          }
        });
  });
  return found;
}

}  // namespace

TEST_CASE("find_neighbours: ranks of a host find each other, and one block of each is mapped by all") {
  const auto found = find_all(3, [](std::span<std::byte>) {});
  for (int rank = 0; rank < 3; ++rank) {
    const neighbourhood& around = found[static_cast<std::size_t>(rank)];
    CHECK(around.group_of == std::vector<int>{0, 0, 0});
    for (int peer = 0; peer < 3; ++peer) {
      CHECK(around.ranks[static_cast<std::size_t>(peer)].has_value() == (peer != rank));
    }
    around.own.bell().rung = static_cast<std::uint32_t>(rank + 7);
  }
  CHECK(found[0].ranks[2]->block.bell().rung == 9);
  CHECK(found[2].ranks[0]->block.bell().rung == 7);
}

TEST_CASE("find_neighbours: who does not know the proof of this job gets nothing, and keeps nobody away") {
  std::vector<neighbour_socket> strangers;
  const auto found = find_all(2, [&](std::span<std::byte> cards) {
    neighbour_name name;  // of rank 0, at the beginning of its card
    std::memcpy(&name, cards.data(), sizeof name);
    for (int i = 0; i < 2; ++i) {
      auto stranger = neighbour_socket::connect(name);
      REQUIRE(stranger);
      if (i == 0) {
        const auto soon = std::chrono::steady_clock::now() + std::chrono::seconds(1);
        CHECK(stranger->send(detail::neighbour_greeting{1, {}}, {0, 1}, soon));
      }
      strangers.push_back(std::move(*stranger));
    }
  });
  CHECK(found[0].group_of == std::vector<int>{0, 0});
  for (const neighbour_socket& stranger : strangers) {
    std::vector<descriptor> handed;
    CHECK_FALSE(stranger.receive<detail::neighbour_greeting>(handed, std::chrono::steady_clock::now()));
    CHECK(handed.empty());
  }
}

TEST_CASE("sharing_groups: ranks are together where all pairs of them share, both ways") {
  const auto groups = [](int size, std::vector<std::pair<int, int>> one_way) {
    std::vector<std::uint8_t> shares(static_cast<std::size_t>(size * size));
    for (const auto& [from, to] : one_way) {
      shares[static_cast<std::size_t>(from * size + to)] = 1;
    }
    return detail::sharing_groups(size, shares);
  };
  CHECK(groups(3, {}) == std::vector<int>{0, 1, 2});
  CHECK(groups(3, {{0, 2}, {2, 0}}) == std::vector<int>{0, 1, 0});
  CHECK(groups(2, {{0, 1}}) == std::vector<int>{0, 1});
  // 0 and 1, 1 and 2, but not 0 and 2.
  CHECK(groups(3, {{0, 1}, {1, 0}, {1, 2}, {2, 1}}) == std::vector<int>{0, 0, 1});
}
