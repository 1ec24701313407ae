#include <gradweave/synchronizer/zero_filling.hpp>

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("zero_filling: what nobody used is what it was, what another rank used is the average") {
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> copied(3, 7), adopted(2, 8), used(1, 9);
    manifest gradients;
    gradients.add("copied", copied);
    gradients.add_range("adopted", adopted.data(), adopted.size());
    gradients.add("used", used);
    gradient_table table(std::move(gradients));
    std::vector<std::byte> arena(256);
    table.place(lay_out_arena(table.entries()), arena.data());
    zero_filling zeros;
    for (const bool used_elsewhere : {false, true}) {
      table.begin_step();
      zeros.begin_step();
      CHECK(zeros.digest() == 0);
      table.mark_used({2}, true);
      if (used_elsewhere && backend.rank() == 1) {
        table.mark_used({0}, true);
        table.mark_used({1}, true);
      }
      std::vector<slot> filled;
      zeros.fill_unused(table, [&](slot which) { filled.push_back(which); });
      if (!(used_elsewhere && backend.rank() == 1)) {
        CHECK(filled == std::vector<slot>{{0}, {1}});
        CHECK(zeros.digest() != 0);
        CHECK(adopted == std::vector<float>{0, 0});
        CHECK(*reinterpret_cast<float*>(table.memory({0})) == 0);
        CHECK(copied[0] == 7);
      }
      *reinterpret_cast<float*>(table.memory({0})) = 70;
      adopted[1] = 80;
      zeros.settle(backend, table, {.slots_differ = used_elsewhere}, true);
      if (!used_elsewhere) {
        CHECK(copied[0] == 7);
        CHECK(adopted == std::vector<float>{8, 8});
      } else if (backend.rank() == 0) {
        CHECK(copied[0] == 70);
        CHECK(adopted[1] == 80);
      }
    }
  });
}
