#include <gradweave/transport/lending_desk.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

// What two ranks lend each other is in tests/transport/shared_memory_test.cpp: that takes both.

TEST_CASE("lending_desk: lends what lies in one segment that it made and that still exists, in few pieces") {
  neighbourhood alone;
  alone.ranks.resize(1);
  alone.group_of = {0};
  detail::lending_desk desk(0, std::move(alone));
  CHECK_FALSE(desk.has(0));
  CHECK(desk.group_of(0) == 0);
  auto first = desk.allocate(1000);
  const auto second = desk.allocate(1000);
  std::array<std::byte, 8> elsewhere{};
  const auto can_lend = [&](const std::vector<extent>& memory) { return desk.can_lend(memory); };
  CHECK(can_lend({}));
  CHECK(can_lend({{first->data(), 1000, 0}}));
  CHECK(can_lend({{first->data() + 10, 5, 0}, {first->data() + 900, 100, 0}}));
  CHECK_FALSE(can_lend({{elsewhere.data(), elsewhere.size(), 0}}));
  CHECK_FALSE(can_lend({{first->data(), 10, 0}, {second->data(), 10, 0}}));
  CHECK_FALSE(can_lend(std::vector<extent>(shared_pair::pieces_max + 1, {first->data(), 1, 0})));
  const extent gone{first->data(), 10, 0};
  first.reset();
  CHECK_FALSE(can_lend({gone}));
  CHECK(can_lend({{second->data(), 1000, 0}}));
}
