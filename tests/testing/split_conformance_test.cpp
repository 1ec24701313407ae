#include <gradweave/testing/split_conformance.hpp>

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;
using namespace std::chrono_literals;

namespace {

enum class fault { ignores_keys, ignores_colours, ignores_no_group, keeps_failures_to_itself, takes_any_colour };

/// loopback whose groups have something wrong.
struct faulty : gw::backend::loopback {
  using loopback = gw::backend::loopback;

  faulty(loopback right, fault what) : loopback(std::move(right)), what_(what) {}

  std::optional<faulty> split(int colour, int key) {
    key = what_ == fault::ignores_keys ? 0 : key;
    colour = what_ == fault::ignores_colours && colour >= 0 ? 0 : colour;
    colour = what_ == fault::ignores_no_group && colour == gw::no_group ? 9 : colour;
    colour = what_ == fault::takes_any_colour && colour < gw::no_group ? 0 : colour;
    auto made = loopback::split(colour, key);
    return made ? std::optional<faulty>(std::in_place, std::move(*made), what_) : std::nullopt;
  }

  gw::failure abort(gw::failure cause) {
    return what_ == fault::keeps_failures_to_itself ? cause : loopback::abort(std::move(cause));
  }

 private:
  fault what_;
};
static_assert(gw::explain_splitting_backend<faulty>());

void check_catches(fault what, std::string_view sentence) {
  const auto run = [what](int size, auto&& body) {
    gw::backend::run_loopback(size, [&](gw::backend::loopback right) { body(faulty(std::move(right), what)); },
                              {.timeout = 1s});
  };
  const auto report = gt::check_split(run, {3});
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_split: loopback passes") {
  const gt::watchdog guard("check_split: loopback passes");
  const auto report = gt::check_split([](int size, auto&& body) { gw::backend::run_loopback(size, body); });
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
}

TEST_CASE("check_split: catches each fault") {
  const gt::watchdog guard("check_split: catches each fault");
  check_catches(fault::ignores_keys, "3 ranks, all in one, in reversed order: the rank in the group is wrong");
  check_catches(fault::ignores_colours, "3 ranks, each alone: the group's size is wrong");
  check_catches(fault::ignores_no_group, "3 ranks, nobody in any: no_group, and no colour, means no group");
  check_catches(fault::keeps_failures_to_itself, "3 ranks, the last one aborts in a group: a rank");
  check_catches(fault::takes_any_colour, "gives colour -7: split must throw on every rank");
}
