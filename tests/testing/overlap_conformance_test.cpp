#include <gradweave/testing/overlap_conformance.hpp>

#include <atomic>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include <gradweave/description.hpp>
#include <gradweave/one_of.hpp>
#include <gradweave/overlap/blocking.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/overlap/progress_thread.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

enum class fault { none, forgets_to_drain, stops_early, drains_once, runs_twice };

/// blocking with something wrong.
struct faulty_overlap {
  fault what = fault::none;

  friend bool operator==(const faulty_overlap&, const faulty_overlap&) = default;
  void describe(gw::description& sink) const { sink.add("name", "faulty"); }

  template <gw::lane_work Work>
  class lane {
   public:
    lane(Work& work, fault what) : work_(work), what_(what) {
      if (what == fault::runs_twice) {
        thread_ = std::thread([this] {
          while (!stopping_.load()) {
            work_.advance();
          }
        });
      }
    }
    lane(const lane&) = delete;
    lane& operator=(const lane&) = delete;
    ~lane() {
      stopping_ = true;
      if (thread_.joinable()) {
        thread_.join();
      }
    }

    void notify() noexcept {}

    void drain() {
      if (what_ == fault::forgets_to_drain) {
        return;
      }
      for (;;) {
        const gw::lane_status status = work_.advance();
        if (status == gw::lane_status::finished || what_ == fault::drains_once ||
            (status == gw::lane_status::pending && what_ == fault::stops_early && ++turns_ % 5 == 0)) {
          return;
        }
        work_.wait();
      }
    }

   private:
    Work& work_;
    fault what_;
    int turns_ = 0;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
  };

  template <gw::lane_work Work>
  lane<Work> make_lane(Work& work) const {
    return lane<Work>(work, what);
  }
};

static_assert(gw::overlap_policy<faulty_overlap>);

void check_passes(const gt::conformance_report& report) { CHECK_MESSAGE(report.passed(), gt::to_string(report)); }

void check_catches(fault what, std::string_view sentence) {
  const auto report = gt::check_overlap(faulty_overlap{what});
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_overlap: the library's own policies pass") {
  const gt::watchdog guard("check_overlap: the library's own policies pass");
  check_passes(gt::check_overlap(gw::overlap::blocking{}));
  check_passes(gt::check_overlap(gw::overlap::progress_thread{}));
  using any = gw::one_of<gw::overlap::blocking, gw::overlap::progress_thread>;
  check_passes(gt::check_overlap(any(gw::overlap::blocking{})));
  check_passes(gt::check_overlap(any(gw::overlap::progress_thread{})));
  check_passes(gt::check_description({any(gw::overlap::blocking{}), any(gw::overlap::progress_thread{})}));
}

TEST_CASE("check_overlap: many short steps on a thread of its own") {
  const gt::watchdog guard("check_overlap: many short steps on a thread of its own");
  check_passes(
      gt::check_overlap(gw::overlap::progress_thread{}, {.seed = 2, .steps = 300, .threads = 2, .buckets = 2}));
}

TEST_CASE("check_overlap: catches each fault") {
  const gt::watchdog guard("check_overlap: catches each fault");
  check_passes(gt::check_description({faulty_overlap{}}));
  check_passes(gt::check_overlap(faulty_overlap{}));
  check_catches(fault::forgets_to_drain, "drain() returned before the work was finished");
  check_catches(fault::drains_once, "drain() returned before the work was finished");
  check_catches(fault::stops_early, "drain() returned before the work was finished");
  check_catches(fault::runs_twice, "two threads were in advance() or wait() at once");
}
