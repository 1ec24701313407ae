#include <gradweave/synchronizer/engine_work.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
struct counting_engine {
  int calls = 0;
  lane_status advance() noexcept {
    ++calls;
    return lane_status::pending;
  }
  void wait() noexcept { ++calls; }
  bool finished() const noexcept { return calls == 2; }
};
}  // namespace

TEST_CASE("engine_work: is the engine's, and what a lane asks for") {
  static_assert(lane_work<detail::engine_work<counting_engine>>);
  counting_engine engine;
  detail::engine_work<counting_engine> work{&engine};
  CHECK(work.advance() == lane_status::pending);
  CHECK_FALSE(work.finished());
  work.wait();
  CHECK(work.finished());
}
