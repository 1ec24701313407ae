#include <gradweave/backend/nccl/comparison.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gd = gradweave::detail;
using gw::collective;
using gw::element_kind;
using gw::extent;

namespace {

/// What a rank enters; memory is not looked at.
struct entered {
  gw::collective_request request;
  std::vector<extent> data = {{nullptr, 24, 0}};
  std::vector<std::size_t> pieces = {0, 2, 4, 6};
  std::vector<std::size_t> source_pieces = {0, 2, 4, 6};
  gd::launches_before before{};
};

/// Three ranks enter `what`, the last one after `change`. What they are told, which has to be one thing; nothing if all goes
/// well.
std::string told(entered what, const std::function<void(entered&)>& change) {
  std::array<std::string, 3> sentences;
  gw::backend::run_loopback(3, [&](gw::backend::loopback control) {
    const auto rank = static_cast<std::size_t>(control.rank());
    gd::collective_comparison comparison(std::move(control));
    entered mine = what;
    if (rank == 2) {
      change(mine);
    }
    mine.request.data = mine.data;
    mine.request.pieces = mine.pieces;
    mine.request.source_pieces = mine.source_pieces;
    comparison.compare({.operation = collective::broadcast}, {});  // which goes well
    try {
      comparison.compare(mine.request, mine.before);
    } catch (const gw::sync_error& error) {
      CHECK(error.code() == gw::errc::collective_mismatch);
      sentences[rank] = error.cause().detail;
    }
  });
  CHECK(sentences[0] == sentences[1]);
  CHECK(sentences[0] == sentences[2]);
  return sentences[0];
}

}  // namespace

TEST_CASE("comparison of collectives: whatever differs is named, on all ranks alike") {
  const gw::testing::watchdog dog("comparison of collectives");
  const entered sum{.request = {.operation = collective::all_reduce, .kind = element_kind::float32}};
  const entered exchange{.request = {.operation = collective::all_to_all, .kind = element_kind::float32}};
  CHECK(told(sum, [](entered&) {}) == "");
  CHECK(told(exchange, [](entered&) {}) == "");
  CHECK(told(sum, [](entered& own) { own.request.kind = element_kind::int32; }) ==
        "rank 0 entered all_reduce of 6 float32 elements (collective 1, plan 0) and rank 2 all_reduce of 6 int32 "
        "elements "
        "(collective 1, plan 0); they differ in what is to be done");
  const auto differs = [](const std::string& text) { return text.substr(text.rfind("differ in ") + 10); };
  CHECK(differs(told(sum, [](entered& own) { own.data = {{nullptr, 8, 0}, {nullptr, 16, 8}}; })) ==
        "how the buffer is cut into extents");
  CHECK(differs(told({.request = {.operation = collective::all_gather}},
                     [](entered& own) { own.pieces = {0, 1, 4, 6}; })) == "the ranks' pieces");
  CHECK(differs(told(exchange, [](entered& own) { own.pieces = {0, 1, 4, 6}; })) ==
        "how much the one sends to the other: 2 and 1 elements");
}

TEST_CASE("comparison of collectives: of other groups only those count that both ranks are in") {
  const gw::testing::watchdog dog("comparison of collectives: order");
  entered sum{.request = {.operation = collective::all_reduce}};
  sum.before[0] = {77, 3};
  CHECK(told(sum, [](entered& own) { own.before = {{{5, 9}, {77, 3}}}; }) == "");
  CHECK(told(sum, [](entered& own) { own.before = {}; }) == "");
  CHECK(told(sum, [](entered& own) {
          own.before[0].launches = 4;
        }).ends_with("they differ in how many collectives of another group came before it"));
}
