#include <gradweave/collective/opening.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("opening: survives the way through a control message, and says what it is in words") {
  std::vector<float> values(10);
  const extent whole{reinterpret_cast<std::byte*>(values.data()), 40, 0};
  const collective_request request{.operation = collective::all_reduce,
                                   .kind = element_kind::float32,
                                   .reduce = {reduction_operation::sum, 4},
                                   .plan_version = 2,
                                   .data = {&whole, 1}};
  const opening sent = opening::of(request, 7, {.expected = 5});
  CHECK(opening::decode(sent.encode()) == sent);
  CHECK(sent.expected == 5);
  CHECK(to_string(sent) == "all_reduce of 10 float32 elements (collective 7, plan 2)");
}

TEST_CASE("opening: anything that makes collectives differ makes openings differ") {
  std::vector<float> values(10);
  const extent whole{reinterpret_cast<std::byte*>(values.data()), 40, 0};
  const extent shorter{reinterpret_cast<std::byte*>(values.data()), 36, 0};
  const collective_request request{
      .operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}};
  const opening own = opening::of(request, 1, {.expected = 5});
  const auto differs = [&](auto change) {
    collective_request other = request;
    change(other);
    return opening::of(other, 1, {.expected = 5}) != own;
  };
  CHECK(differs([](auto& r) { r.operation = collective::broadcast; }));
  CHECK(differs([](auto& r) { r.kind = element_kind::int32; }));
  CHECK(differs([](auto& r) { r.reduce.divisor = 2; }));
  CHECK(differs([](auto& r) { r.reduce.operation = reduction_operation::max; }));
  CHECK(differs([](auto& r) { r.plan_version = 1; }));
  CHECK(differs([](auto& r) { r.root = 1; }));
  CHECK(differs([&](auto& r) { r.data = {&shorter, 1}; }));
  CHECK(opening::of(request, 2, {.expected = 5}) != own);
  CHECK(opening::of(request, 1, {.expected = 6}) != own);
  CHECK(opening::of(request, 1, {.expected = 5, .lent = 1}) != own);
  CHECK(opening::of(request, 1, {.expected = 5, .borrowed = 1}) != own);
}

TEST_CASE("opening: one that holds what no version knows can be told all the same") {
  opening strange;
  strange.operation = static_cast<collective>(200);
  strange.kind = static_cast<element_kind>(0);
  strange.expected = 3;
  CHECK(to_string(opening::decode(strange.encode())) == "invalid of 3 invalid elements (collective 0, plan 0)");
}
