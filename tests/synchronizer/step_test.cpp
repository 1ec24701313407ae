#include <gradweave/synchronizer/step.hpp>

#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

namespace {
struct recorded_engine {
  std::vector<std::string> calls;
  void begin_step(const step_options& options) { calls.push_back("begin " + std::to_string(options.samples)); }
  void begin_accumulation() { calls.push_back("accumulate"); }
  void finish_accumulation() { calls.push_back("finish accumulation"); }
  void ready(slot which) { calls.push_back("ready " + std::to_string(which.index)); }
  step_result finish() {
    calls.push_back("finish");
    return {};
  }
  void close() { calls.push_back("close"); }
  void wait(slot which) { calls.push_back("wait " + std::to_string(which.index)); }
  void abandon(const char*) noexcept { calls.push_back("abandon"); }
};
}  // namespace

TEST_CASE("open_step: finished once, it is closed") {
  recorded_engine engine;
  {
    open_step step(engine);
    step.ready({4});
    step.finish();
    CHECK_THROWS_AS(step.ready({4}), contract_violation);
    CHECK_THROWS_AS(step.finish(), contract_violation);
  }
  CHECK(engine.calls == std::vector<std::string>{"begin 1", "ready 4", "finish"});
}

TEST_CASE("open_step: destroyed unfinished it gives the step up, moved from it does not") {
  recorded_engine engine;
  {
    open_step first(engine);
    const open_step second(std::move(first));
  }
  CHECK(engine.calls == std::vector<std::string>{"begin 1", "abandon"});
}

namespace {
using accumulation = open_step<recorded_engine, step_purpose::accumulate>;

template <class Step>
concept can_be_waited_for = requires(Step& step) { step.wait(slot{}); } || requires(Step& step) { step.close(); };
template <class Step>
concept can_be_finished_with_others = requires(Step& step) { finish_all(step); };

static_assert(can_be_waited_for<open_step<recorded_engine>> && !can_be_waited_for<accumulation>);
static_assert(can_be_finished_with_others<open_step<recorded_engine>> && !can_be_finished_with_others<accumulation>);
}  // namespace

TEST_CASE("open_step: an accumulation is begun and ended as such") {
  recorded_engine engine;
  {
    open_step<recorded_engine, step_purpose::accumulate> step(engine);
    step.ready({1});
    step.finish();
  }
  CHECK(engine.calls == std::vector<std::string>{"accumulate", "ready 1", "finish accumulation"});
}

TEST_CASE("open_step: once closed it takes no gradient; it can be waited for, and is finished or given up") {
  recorded_engine engine;
  {
    open_step step(engine);
    step.close();
    CHECK_THROWS_AS(step.ready({4}), contract_violation);
    open_step moved(std::move(step));
    CHECK_THROWS_AS(moved.ready({4}), contract_violation);
    moved.wait({2});
  }
  CHECK(engine.calls == std::vector<std::string>{"begin 1", "close", "close", "wait 2", "abandon"});
}

TEST_CASE("finish_all: closes every step before it waits for one, then waits in the order of the synchronizers") {
  std::vector<std::string> calls;
  struct engine : recorded_engine {
    std::vector<std::string>* all = nullptr;
    int age = 0;
    const engine& meter() const { return *this; }
    int made_at() const { return age; }
    void close() { all->push_back("close " + std::to_string(age)); }
    step_result finish() {
      all->push_back("finish " + std::to_string(age));
      return {static_cast<std::uint64_t>(age), 0};
    }
  };
  std::vector<engine> engines(3);
  for (int age = 0; age < 3; ++age) {
    engines[static_cast<std::size_t>(age)].all = &calls;
    engines[static_cast<std::size_t>(age)].age = age;
  }
  open_step first(engines[2]), second(engines[0]), third(engines[1]);
  const auto results = finish_all(first, second, third);
  CHECK(calls == std::vector<std::string>{"close 2", "close 0", "close 1", "finish 0", "finish 1", "finish 2"});
  CHECK(results[0].step == 2);
  CHECK(results[1].step == 0);
  CHECK(results[2].step == 1);
}
