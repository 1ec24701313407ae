#include <gradweave/transport/spinning.hpp>

#include <chrono>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

/// Passes when it is looked at, and as the test lets it.
struct slow_clock {
  using duration = std::chrono::nanoseconds;
  using time_point = std::chrono::time_point<slow_clock, duration>;
  static inline duration passed{};
  static time_point now() { return time_point(passed += duration(100)); }
};

/// Of a core that others need for `turn` each time.
struct yielded_turn {
  std::chrono::microseconds* turn;
  int* yields;
  void operator()() const {
    slow_clock::passed += *turn;
    ++*yields;
  }
};

struct core {
  std::chrono::microseconds turn{};
  int yields = 0;
  basic_spinner<slow_clock, yielded_turn> spin{yielded_turn{&turn, &yields}};

  /// How often it gave the core away before it gave up.
  int wait_in_vain() {
    yields = 0;
    CHECK_FALSE(spin.until([] { return false; }));
    return yields;
  }
};

}  // namespace

TEST_CASE("spinner: ends when the condition holds, at the first look, while it only looks, once it yields") {
  for (const int wanted : {1, 10, 200}) {
    core here;
    int looks = 0;
    CHECK(here.spin.until([&] { return ++looks == wanted; }));
    CHECK((here.yields > 0) == (wanted == 200));
  }
}

TEST_CASE("spinner: yields while other threads give the core back at once, however many") {
  core here;
  here.turn = std::chrono::microseconds(10);
  CHECK(here.wait_in_vain() >= 5);
  CHECK(here.wait_in_vain() >= 5);
}

TEST_CASE("spinner: gives up at the first yield that a computing thread makes long, and does not yield for a while") {
  core here;
  here.turn = std::chrono::milliseconds(3);
  CHECK(here.wait_in_vain() == 1);
  CHECK(here.wait_in_vain() == 0);
  slow_clock::passed += std::chrono::milliseconds(80);
  CHECK(here.wait_in_vain() == 0);
  slow_clock::passed += std::chrono::milliseconds(20);  // more than 32 slices: it tries again
  CHECK(here.wait_in_vain() == 1);
  here.turn = {};
  slow_clock::passed += std::chrono::milliseconds(100);
  CHECK(here.wait_in_vain() > 1);
}

TEST_CASE("spinner: what came during a long yield is not missed") {
  core here;
  here.turn = std::chrono::milliseconds(3);
  CHECK(here.spin.until([&] { return here.yields == 1; }));
  CHECK(here.wait_in_vain() == 0);
}

TEST_CASE("spinner: works with real time") {
  spinner spin;
  CHECK_FALSE(spin.until([] { return false; }));
  CHECK(spin.until([] { return true; }));
}
