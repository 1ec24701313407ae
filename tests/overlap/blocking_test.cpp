#include <gradweave/overlap/blocking.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
struct countdown {
  int left = 3;
  int waits = 0;
  lane_status advance() noexcept { return --left == 0 ? lane_status::finished : lane_status::pending; }
  void wait() noexcept { ++waits; }
  bool finished() const noexcept { return left == 0; }
};
}  // namespace

TEST_CASE("blocking: does nothing until the step ends, then drives the work on the caller") {
  countdown work;
  auto lane = overlap::blocking{}.make_lane(work);
  lane.notify();
  CHECK(work.left == 3);
  lane.drain();
  CHECK(work.left == 0);
  CHECK(work.waits == 2);
}
