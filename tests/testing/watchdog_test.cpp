#include <gradweave/testing/watchdog.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/testing/guarded_memory.hpp>

namespace gt = gradweave::testing;
using namespace std::chrono_literals;

TEST_CASE("watchdog: ends a process that hangs, and only that") {
  CHECK(gt::survives([] { gt::watchdog guard("quick", 60s); }));
  CHECK(!gt::survives([] {
    std::fclose(stderr);  // what it says is not this test's
    ::setenv("GRADWEAVE_TEST_TIMEOUT_S", "60", 1);
    gt::watchdog guard("hangs", 50ms);
    std::this_thread::sleep_for(30s);
  }));
}

TEST_CASE("watchdog: the environment scales its limit") {
  CHECK(gt::survives([] {
    const auto scaled = [](const char* text) {
      ::setenv("GRADWEAVE_TEST_TIMEOUT_S", text, 1);
      return gt::watchdog::scaled(2s);
    };
    const bool right = scaled("60") == 2s && scaled("600") == 20s && scaled("30") == 1s && scaled("") == 2s &&
                       scaled("-5") == 2s && scaled("soon") == 2s && scaled("nan") == 2s && scaled("1e99") == 2s;
    ::unsetenv("GRADWEAVE_TEST_TIMEOUT_S");
    if (!right || gt::watchdog::scaled(2s) != 2s) {
      throw 1;
    }
  }));
}
