#include <gradweave/testing/conformance.hpp>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/description.hpp>

namespace gt = gradweave::testing;

namespace {

struct described {
  std::string name = "described";
  int option = 0;
  bool tells_option = true;

  friend bool operator==(const described&, const described&) = default;
  void describe(gradweave::description& sink) const {
    sink.add("name", name);
    if (tells_option) {
      sink.add("option", option);
    }
  }
};

}  // namespace

TEST_CASE("conformance_report: passes only where something was checked and nothing failed") {
  gt::conformance_report report;
  CHECK(!report.passed());
  report.count_check();
  CHECK(report.passed());
  CHECK(gt::to_string(report) == "passed: 1 checks");
  report.fail("it is wrong");
  CHECK(!report.passed());
  CHECK(gt::to_string(report) == "failed: 1 checks\n  - it is wrong");
  CHECK(gt::mentions(report, "is wrong"));
  CHECK(!gt::mentions(report, "right"));
}

TEST_CASE("conformance_report: keeps each sentence once, and a bounded number") {
  gt::conformance_report report;
  report.fail("twice");
  report.fail("twice");
  CHECK(report.failures().size() == 1);
  for (int i = 0; i < 1000; ++i) {
    report.fail("sentence " + std::to_string(i));
  }
  CHECK(report.failures().size() == gt::conformance_report::failures_kept_max);
}

TEST_CASE("conformance_recorder: counts checks of several threads and makes sentences only for failures") {
  gt::conformance_recorder recorder;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        recorder.check(true, []() -> std::string { throw std::logic_error("a sentence for what passed"); });
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(recorder.report().passed());
  CHECK(recorder.report().checks() == 4000);
}

TEST_CASE("conformance_recorder: an exception in a part is a failure") {
  gt::conformance_recorder recorder;
  recorder.part("some part", [] { throw std::runtime_error("out of paper"); });
  recorder.part("other part", [] { throw 1; });
  CHECK(gt::mentions(recorder.report(), "some part: threw out of paper"));
  CHECK(gt::mentions(recorder.report(), "other part: threw something"));
}

TEST_CASE("random_source: gives the published numbers of splitmix64") {
  gt::random_source random(1234567);
  CHECK(random.next() == 6457827717110365317U);
  CHECK(random.next() == 3203168211198807973U);
  CHECK(gt::random_source(1).below(0) == 0);
}

TEST_CASE("check_description: different options must show") {
  CHECK(gt::check_description({described{}, described{"described", 1}, described{"other"}}).passed());
  CHECK(gt::mentions(gt::check_description({described{"d", 0, false}, described{"d", 1, false}}),
                     "says the same of both"));
  CHECK(gt::mentions(gt::check_description({described{""}}), "must begin with the entry 'name'"));
}
