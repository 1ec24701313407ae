#include <gradweave/synchronizer/stream_step.hpp>

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {

struct noting_engine {
  using stream = int;
  std::vector<std::string> calls;

  void begin_step(const step_options&) { calls.push_back("begin"); }
  void begin_accumulation() { calls.push_back("accumulate"); }
  void ready(slot which, int on) { calls.push_back(std::to_string(which.index) + " on " + std::to_string(on)); }
  void finish(int on) { calls.push_back("finish on " + std::to_string(on)); }
  void finish_accumulation() { calls.push_back("finish"); }
  void abandon(const char*) noexcept { calls.push_back("abandon"); }
};

}  // namespace

TEST_CASE("open_stream_step: passes on what it is told, and abandons what nobody finishes") {
  noting_engine engine;
  {
    open_stream_step<noting_engine> step(engine);
    step.ready({2}, 7);
    step.finish(9);
    CHECK_THROWS_AS(step.ready({2}, 7), contract_violation);
    CHECK_THROWS_AS(step.finish(9), contract_violation);
    open_stream_step<noting_engine, step_purpose::accumulate>(engine).finish();
    open_stream_step<noting_engine> forgotten(engine);
    open_stream_step<noting_engine> moved(std::move(forgotten));
  }
  CHECK(engine.calls ==
        std::vector<std::string>{"begin", "2 on 7", "finish on 9", "accumulate", "finish", "begin", "abandon"});
}
