#include <gradweave/testing/virtual_time.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("virtual_time: moves to the next deadline once all threads wait, and takes no time") {
  testing::virtual_time time;
  std::vector<std::string> log;
  time.run(3, [&](int self) {
    time.wait(self, time.now() + std::chrono::hours(3 - self));
    log.push_back(std::to_string(self) + " at " + std::to_string((time.now() - deadline{}) / 1h));
  });
  CHECK(log == std::vector<std::string>{"2 at 1", "1 at 2", "0 at 3"});
}

TEST_CASE("virtual_time: who is woken goes on at that time") {
  testing::virtual_time time;
  deadline woken{};
  time.run(2, [&](int self) {
    if (self == 0) {
      time.wait(0, deadline::max());
      woken = time.now();
    } else {
      time.wait(1, time.now() + 5ms);
      time.wake(0);
      time.wait(1, time.now() + 5ms);
    }
  });
  CHECK(woken - deadline{} == 5ms);
}

TEST_CASE("virtual_time: timers of one time are called in order, and earlier ones before") {
  testing::virtual_time time;
  std::string log;
  time.at(time.now() + 2ms, [&] { log += "b"; });
  time.at(time.now() + 1ms, [&] { log += "a"; });
  time.at(time.now() + 2ms, [&] { log += "c"; });
  time.run(1, [&](int) { time.wait(0, time.now() + 3ms); });
  CHECK(log == "abc");
}

TEST_CASE("virtual_time: the same seed gives the same turns, another one others") {
  testing::virtual_time time;
  const auto turns = [&](std::uint64_t seed) {
    std::string log;
    time.reset(seed);
    time.run(4, [&](int self) {
      for (int i = 0; i < 8; ++i) {
        log += std::to_string(self);
        time.yield(self);
      }
    });
    return log;
  };
  const std::string first = turns(7);
  CHECK(first.size() == 32);
  CHECK(turns(7) == first);
  CHECK(turns(8) != first);
}

TEST_CASE("virtual_time: a standstill is told, and can be ended") {
  testing::virtual_time time;
  int told = 0;
  time.on_standstill([&] {
    ++told;
    time.wake(1);
    time.wake(0);
  });
  time.run(2, [&](int self) { time.wait(self, deadline::max()); });
  CHECK(told == 1);
}

TEST_CASE("virtual_time: without a run whoever waits lets time pass alone") {
  testing::virtual_time time;
  time.at(time.now() + 1ms, [&] { time.wake(0); });
  time.wait(0, time.now() + 1h);
  CHECK(time.now() - deadline{} == 1ms);
  time.wait(0, time.now() + 1h);
  CHECK(time.now() - deadline{} == 1h + 1ms);
}
