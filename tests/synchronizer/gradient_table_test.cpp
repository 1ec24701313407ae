#include <gradweave/synchronizer/gradient_table.hpp>

#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("gradient_table: copies what is not in the arena, and back") {
  std::vector<float> own{1, 2, 3};
  manifest gradients;
  gradients.add("own", own);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(64);
  table.place(lay_out_arena(table.entries()), arena.data());
  CHECK(table.bytes() == 12);
  table.begin_step();
  CHECK_FALSE(table.is_ready({0}));
  table.mark_used({0}, true);
  CHECK(table.is_ready({0}));
  auto* placed = reinterpret_cast<float*>(table.memory({0}));
  CHECK(placed[2] == 3);
  placed[2] = 30;
  placed[0] = 10;
  table.copy_back({0}, {1, 2});
  CHECK(own == std::vector<float>{1, 2, 30});
  table.begin_step();
  CHECK_FALSE(table.is_ready({0}));
}

TEST_CASE("gradient_table: a tensor that can't be read does not count as ready") {
  std::vector<float> own(3);
  manifest gradients;
  gradients.add("own", own);
  gradient_table table(std::move(gradients));
  std::vector<std::byte> arena(64);
  table.place(lay_out_arena(table.entries()), arena.data());
  table.begin_step();
  own.resize(2);
  CHECK_THROWS_AS(table.mark_used({0}, true), contract_violation);
  CHECK_FALSE(table.is_ready({0}));
}

TEST_CASE("gradient_table: a gradient in another memory space is refused by name") {
  std::vector<float> own(3);
  manifest gradients;
  gradients.add("own", own);
  const gradient_table table(std::move(gradients));
  CHECK_NOTHROW(table.check_memory_space(memory_space::host));
  CHECK_THROWS_WITH_AS(table.check_memory_space(memory_space::cuda), doctest::Contains("slot 'own'"),
                       contract_violation);
}
