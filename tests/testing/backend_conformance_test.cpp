#include <gradweave/testing/backend_conformance.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/scheduled.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;
using namespace std::chrono_literals;

namespace {

enum class fault {
  none,
  forgets_to_divide,
  takes_maximum_for_minimum,
  roots_at_zero,
  loses_the_last_byte,
  writes_behind_the_data,
  skips_barriers,
  hides_plan_versions,
  keeps_aborts_to_itself,
  outlives_itself,
  counts_headers,
  dirties_arenas,
  blames_nobody,
  counts_ranks_from_one,
};

/// loopback with something wrong.
class faulty_backend {
 public:
  static constexpr gw::memory_space space = gw::memory_space::host;
  static constexpr gw::execution_model execution = gw::execution_model::host;
  static constexpr gw::collective_set capabilities = gw::backend::loopback::capabilities;

  faulty_backend(gw::backend::loopback right, fault what, std::vector<gw::backend::loopback>* kept = nullptr)
      : right_(std::move(right)), what_(what), kept_(kept) {}
  faulty_backend(faulty_backend&& other) noexcept
      : right_(std::move(other.right_)), what_(other.what_), kept_(std::exchange(other.kept_, nullptr)) {}
  faulty_backend& operator=(faulty_backend&&) = default;
  ~faulty_backend() {
    if (kept_ != nullptr) {
      static std::mutex mutex;
      std::lock_guard lock(mutex);
      kept_->push_back(std::move(right_));
    }
  }

  int rank() const { return right_.rank(); }
  int size() const { return right_.size() + (what_ == fault::counts_ranks_from_one ? 1 : 0); }
  auto allocate_arena(std::size_t bytes) {
    auto arena = right_.allocate_arena(bytes);
    if (what_ == fault::dirties_arenas && bytes != 0) {
      arena.data()[bytes - 1] = std::byte{1};
    }
    return arena;
  }

  void start(gw::collective_request request) {
    request_ = request;
    skipped_ = what_ == fault::skips_barriers && request.operation == gw::collective::barrier;
    switch (what_) {
      case fault::forgets_to_divide: request.reduce.divisor = 1; break;
      case fault::takes_maximum_for_minimum:
        if (request.reduce.operation == gw::reduction_operation::min) {
          request.reduce.operation = gw::reduction_operation::max;
        }
        break;
      case fault::roots_at_zero: request.root = 0; break;
      case fault::hides_plan_versions: request.plan_version = 0; break;
      case fault::counts_headers: headers_ += 64; break;
      default: break;
    }
    if (!skipped_) {
      right_.start(request);
    }
  }
  bool poll() {
    if (!skipped_ && !right_.poll()) {
      return false;
    }
    if (!request_.data.empty()) {
      const gw::extent& last = request_.data.back();
      if (what_ == fault::writes_behind_the_data) {
        last.memory[last.bytes] = std::byte{0};
      }
      if (what_ == fault::loses_the_last_byte) {
        last.memory[last.bytes - 1] ^= std::byte{0x40};
      }
    }
    return true;
  }
  void wait() {
    try {
      right_.wait();
    } catch (const gw::sync_error& error) {
      gw::failure cause = error.cause();
      cause.rank = what_ == fault::blames_nobody ? -1 : cause.rank;
      throw gw::sync_error(cause);
    }
  }
  gw::failure abort(gw::failure cause) {
    return what_ == fault::keeps_aborts_to_itself ? cause : right_.abort(std::move(cause));
  }
  std::uint64_t payload_bytes_sent() const { return right_.payload_bytes_sent() + headers_; }
  void describe(gw::description& sink) const { sink.add("name", "faulty"); }

 private:
  gw::backend::loopback right_;
  fault what_;
  std::vector<gw::backend::loopback>* kept_;
  gw::collective_request request_;
  bool skipped_ = false;
  std::uint64_t headers_ = 0;
};

static_assert(gw::host_backend<faulty_backend>);

/// Runs ranks with a fault over a loopback that gives up after two seconds without progress.
auto runner(fault what) {
  return [what](int size, auto&& body) {
    std::vector<gw::backend::loopback> kept;
    kept.reserve(8);
    gw::backend::run_loopback(
        size,
        [&](gw::backend::loopback right) {
          body(faulty_backend(std::move(right), what, what == fault::outlives_itself ? &kept : nullptr));
        },
        {.timeout = 2s});
  };
}

void check_catches(fault what, std::string_view sentence) {
  const auto report = gt::check_backend(runner(what), {.sizes = {3}});
  CHECK_MESSAGE(gt::mentions(report, sentence), gt::to_string(report));
}

}  // namespace

TEST_CASE("check_backend: loopback passes") {
  const gt::watchdog guard("check_backend: loopback passes");
  const auto report = gt::check_backend([](int size, auto&& body) { gw::backend::run_loopback(size, body); });
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
}

TEST_CASE("check_backend_timeout: loopback names the rank that does not come") {
  const gt::watchdog guard("check_backend_timeout: loopback names the rank that does not come");
  const auto report = gt::check_backend_timeout(runner(fault::none));
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  const auto faulty = gt::check_backend_timeout(runner(fault::blames_nobody), {2});
  CHECK_MESSAGE(gt::mentions(faulty, "no rank names it"), gt::to_string(faulty));
}

TEST_CASE("check_backend: catches each fault") {
  const gt::watchdog guard("check_backend: catches each fault", gt::watchdog::usual_limit * 2);
  check_catches(fault::forgets_to_divide, "all_reduce of float32 in 3 extents: the result is wrong");
  check_catches(fault::takes_maximum_for_minimum, "the result is wrong");
  check_catches(fault::roots_at_zero, "broadcast of float32 in 1 extents: the result is wrong");
  check_catches(fault::loses_the_last_byte, "the result is wrong");
  check_catches(fault::writes_behind_the_data, "memory outside of the extents was written");
  check_catches(fault::skips_barriers, "a rank left a barrier before all had entered it");
  check_catches(fault::hides_plan_versions, "one enters another plan version: a rank got a result");
  check_catches(fault::keeps_aborts_to_itself, "a rank's present or next collective must throw");
  check_catches(fault::outlives_itself, "no rank says peer_lost");
  check_catches(fault::counts_headers, "payload_bytes_sent grew by");
  check_catches(fault::dirties_arenas, "an arena must be zeroed");
  check_catches(fault::counts_ranks_from_one, "size() must be the number of ranks");
}
