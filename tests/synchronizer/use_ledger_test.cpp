#include <gradweave/synchronizer/use_ledger.hpp>

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/compression/none.hpp>

using namespace gradweave;
using namespace gradweave::detail;

namespace {

/// Two gradients in a bucket each.
struct two_slots {
  std::vector<float> a = std::vector<float>(4, 1), b = std::vector<float>(5, 2);
  std::vector<std::byte> arena = std::vector<std::byte>(256);
  gradient_table table;
  bucket_set<compression::none::program> buckets;

  two_slots()
      : table([this] {
          manifest gradients;
          gradients.add("a", a);
          gradients.add("b", b, uses{2});
          return gradients;
        }()) {
    table.place(lay_out_arena(table.entries()), arena.data());
    buckets.adopt({{{slot{0}}, {slot{1}}}}, table, compression::none{}, {0, 2, 2});
  }

  std::vector<slot> settle(use_ledger& ledger, bool has_data = true) {
    std::vector<slot> late;
    ledger.settle(buckets, has_data, [&](slot which) { late.push_back(which); });
    return late;
  }
};

}  // namespace

TEST_CASE(
    "use_ledger: a gradient that lacks uses is a failure, in accumulations too, and zeros where that is the rule") {
  for (const bool sending : {true, false}) {
    two_slots slots;
    use_ledger strict(slots.table, {}, true);
    strict.begin_step(sending);
    slots.buckets.begin_step();
    CHECK(strict.mark({0}));
    slots.buckets.count_down({0});
    CHECK_THROWS_WITH_AS(slots.settle(strict), doctest::Contains("'b'"), sync_error);
    use_ledger filling(slots.table, {.unused_gradients = unused::zero_fill}, true);
    filling.begin_step(sending);
    slots.buckets.begin_step();
    CHECK(filling.mark({0}));
    slots.buckets.count_down({0});
    CHECK(slots.settle(filling) == (sending ? std::vector<slot>{{1}} : std::vector<slot>{}));
    CHECK((filling.unused_digest() != 0) == sending);
  }
}

TEST_CASE(
    "use_ledger: what was accumulated is sent with what it holds, once, also where the last pass did not use it") {
  two_slots slots;
  use_ledger filling(slots.table, {.unused_gradients = unused::zero_fill}, true);
  for (const bool accumulates : {true, false}) {
    if (accumulates) {
      filling.begin_step(false);
      CHECK(filling.mark({0}));
      CHECK(slots.settle(filling).empty());
    }
    slots.a[3] = 7;
    filling.begin_step(true);
    slots.buckets.begin_step();
    CHECK(slots.settle(filling) == std::vector<slot>{{0}, {1}});
    CHECK(slots.table.is_ready({0}) == accumulates);
    CHECK(reinterpret_cast<const float*>(slots.table.memory({0}))[3] == (accumulates ? 7 : 0));
  }
}

TEST_CASE("use_ledger: without data all count as zeros, whatever the rule") {
  two_slots slots;
  use_ledger strict(slots.table, {}, true);
  strict.begin_step(true);
  slots.buckets.begin_step();
  CHECK(slots.settle(strict, false) == std::vector<slot>{{0}, {1}});
}

TEST_CASE("use_ledger: recorded uses make nothing ready before the first end, and count from then on") {
  two_slots slots;
  use_ledger recorded(slots.table, {.uses = use_counts::recorded}, true);
  recorded.seal();
  recorded.begin_step(true);
  slots.buckets.begin_step();
  CHECK_FALSE(recorded.mark({0}));
  CHECK_FALSE(recorded.mark({0}));
  CHECK_FALSE(recorded.mark({0}));
  CHECK_FALSE(recorded.mark({1}));
  std::vector<slot> late;
  recorded.settle(slots.buckets, true, [&](slot which) {
    late.push_back(which);
    slots.buckets.count_down(which);
  });
  CHECK(late == std::vector<slot>{{0}, {1}});
  recorded.begin_step(true);
  CHECK(recorded.mark({1}));
  CHECK_FALSE(recorded.mark({0}));
  CHECK_FALSE(recorded.mark({0}));
  CHECK(recorded.mark({0}));
  CHECK_THROWS_AS(recorded.mark({0}), contract_violation);
}
