#include <gradweave/synchronizer/step_mutex.hpp>

#include <mutex>
#include <thread>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("step_mutex: who holds it is told instead of waiting for itself; others wait") {
  detail::step_mutex mutex;
  int turns = 0;
  const auto take_turns = [&] {
    for (int i = 0; i < 1000; ++i) {
      const std::lock_guard lock(mutex);
      ++turns;
      CHECK_THROWS_AS(mutex.lock(), contract_violation);
      CHECK_THROWS_AS(mutex.require_not_held(), contract_violation);
    }
    CHECK_NOTHROW(mutex.require_not_held());
  };
  std::thread other(take_turns);
  take_turns();
  other.join();
  CHECK(turns == 2000);
}
