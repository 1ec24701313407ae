#include <gradweave/diagnostics/signal_watch.hpp>

#include <atomic>
#include <csignal>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

TEST_CASE("signal_watch: tells everybody who watches, and the process goes on, also after they have gone") {
  const testing::watchdog guard("signal_watch");
  {
    std::atomic<int> first{0}, second{0};
    const signal_watch one([&] { ++first; }), other([&] { ++second; });
    for (int times = 1; times <= 2; ++times) {
      std::raise(SIGUSR1);
      for (; first != times || second != times; std::this_thread::yield()) {
      }
    }
  }
  std::raise(SIGUSR1);
}
