#include <gradweave/backend/nccl.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/error.hpp>
#include <gradweave/testing/stream_backend_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/backend/nccl/rig.hpp"
#include "tests/emulated_cuda/control.hpp"

namespace emulated = emulated_cuda;
namespace gw = gradweave;
using gradweave::collective;
using gradweave::element_kind;
using gradweave::errc;
using gradweave::failure;
using gradweave::sync_error;
using gradweave::backend::loopback;
using gradweave::backend::nccl_options;
using gradweave::testing::watchdog;
using gradweave::tests::emulated_nccl;
using gradweave::tests::emulated_rig;
using gradweave::tests::one_float;
using gradweave::tests::with_devices;
using gradweave::tests::with_nccl;

static_assert(gradweave::explain_stream_backend<emulated_nccl>());
static_assert(gradweave::can_split<emulated_nccl>);

namespace {

/// What each rank was told, by rank.
class stories {
 public:
  explicit stories(int size) : told_(static_cast<std::size_t>(size)) {}

  /// Runs `body`, which should throw sync_error.
  template <class Body>
  void expect(int rank, Body&& body) {
    std::optional<failure> told;
    try {
      body();
    } catch (const sync_error& error) {
      told = error.cause();
    }
    std::lock_guard lock(mutex_);
    told_[static_cast<std::size_t>(rank)] = told;
  }

  /// Checks that all ranks were told one thing, with these words in it.
  void check(errc code, const std::string& words) const {
    for (const auto& each : told_) {
      REQUIRE(each.has_value());
      CHECK(each->code == code);
      CHECK_MESSAGE(each->detail.find(words) != std::string::npos, each->detail);
      CHECK(each->detail == told_.front()->detail);
      CHECK(each->rank == told_.front()->rank);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::optional<failure>> told_;
};

/// As a lane does.
void sum_as_a_lane(emulated_nccl& backend, emulated_rig& rig) {
  try {
    one_float value(backend);
    gradweave::testing::detail::stream_bench bench(backend, rig);
    const auto told = gradweave::testing::detail::attempt(
        backend, rig, bench, gradweave::testing::detail::any_collective().make(backend.size()));
    if (told.threw) {
      throw sync_error(told.cause);
    }
  } catch (const sync_error& error) {
    throw sync_error(backend.abort(error.cause()));
  }
}

}  // namespace

TEST_CASE("nccl: the conformance kit, compared and not, with NCCL at once and late") {
  const watchdog dog("nccl: conformance");
  for (const bool compares : {false, true}) {
    const auto run = [&](int size, auto&& body) {
      const emulated::session session;
      emulated::set_progress_polls(compares ? 2 : 0);
      with_nccl(size, {.timeout = std::chrono::seconds(20), .compares_collectives = compares}, body);
      CHECK(emulated::to_string(emulated::live()) == "");
    };
    const auto report = gradweave::testing::check_stream_backend(
        run, {.sizes = compares ? std::vector{3} : std::vector{1, 2, 4},
              .reduces =
                  [](element_kind kind, const gradweave::reduction& reduce) {
                    return gradweave::detail::nccl_type(kind) && (reduce.divisor == 1 || is_floating(kind));
                  },
              .compares = compares});
    CHECK_MESSAGE(report.passed(), to_string(report));
  }
}

TEST_CASE("nccl: whichever call fails, with whichever code, all ranks tell NCCL's own words") {
  const watchdog dog("nccl: failing calls");
  struct fault {
    const char* function;
    std::uint64_t call;
    int polls;  // of a communicator that is not blocking
  };
  const std::array faults = {
      fault{"ncclGetUniqueId", 1, 0},       fault{"ncclCommInitRankConfig", 2, 0},
      fault{"ncclCommGetAsyncError", 2, 2}, fault{"ncclCommGetAsyncError", 40, 50},
      fault{"ncclAllGather", 2, 0},         fault{"ncclAllGather", 3, 3},
      fault{"cudaStreamWaitEvent", 1, 0},
  };
  const std::array codes = {ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidUsage};
  for (std::size_t i = 0; i < faults.size(); ++i) {
    const emulated::session session;
    const bool is_cuda = std::string(faults[i].function).starts_with("cuda");
    const ncclResult_t code = codes[i % codes.size()];
    emulated::set_progress_polls(faults[i].polls);
    if (is_cuda) {
      emulated::fail_call(faults[i].function, faults[i].call, cudaErrorIllegalAddress);
    } else {
      emulated::fail_call(faults[i].function, faults[i].call, code);
    }
    stories told(3);
    with_devices(3, [&](loopback control, emulated_rig& rig) {
      told.expect(control.rank(), [&] {
        emulated_nccl backend(std::move(control), {});
        std::optional<emulated_nccl> group = backend.split(0, backend.rank());
        sum_as_a_lane(*group, rig);
        sum_as_a_lane(*group, rig);
      });
    });
    told.check(errc::internal, is_cuda ? "cudaErrorIllegalAddress" : ncclGetErrorString(code));
    if (!is_cuda) {
      told.check(errc::internal,
                 "as the test wanted (NCCL " + gradweave::detail::nccl_version_in_words(NCCL_VERSION_CODE));
    }
    CHECK(emulated::to_string(emulated::live()) == "");
  }
}

TEST_CASE("nccl: a rank that is dropped is told by NCCL, where that notices, and streams get past") {
  const watchdog dog("nccl: dropped rank");
  const emulated::session session;
  stories told(3);
  std::atomic<int> enqueued{0};
  with_nccl(3, {}, [&](emulated_nccl backend, emulated_rig& rig) {
    const cudaStream_t on = rig.make_stream();
    const one_float value(backend);
    if (backend.rank() == 2) {
      gradweave::testing::detail::await([&] { return enqueued == 2; });
      emulated::drop_device(2, emulated::notice::remote_error);
    } else {
      backend.enqueue(value.sum(), on);
      ++enqueued;
    }
    told.expect(backend.rank(), [&] {
      try {
        for (; backend.rank() != 2;) {
          backend.check();
          std::this_thread::yield();
        }
        gradweave::detail::gather_values(backend.control(), 0);
      } catch (const sync_error& error) {
        throw sync_error(backend.abort(error.cause()));
      }
    });
    CHECK(cudaStreamSynchronize(on) == cudaSuccess);
  });
  told.check(errc::peer_lost, ncclGetErrorString(ncclRemoteError));
}

TEST_CASE("nccl: what does not fit is refused before NCCL hears of it, on all ranks") {
  const watchdog dog("nccl: refusals");
  const auto expect = [](errc code, const std::string& words, int device_of_last, int version) {
    const emulated::session session;
    emulated::set_nccl_version(version);
    stories told(2);
    with_devices(2, [&](loopback control, emulated_rig&) {
      const int device = control.rank() == 1 ? device_of_last : nccl_options::current_device;
      told.expect(control.rank(), [&] { emulated_nccl(std::move(control), {}, {.device = device}); });
    });
    told.check(code, words);
    CHECK(emulated::to_string(emulated::live()) == "");
  };
  expect(errc::internal, "the NCCL that is loaded is 2.18.5, and the backend needs 2.19.0", 1, 21805);
  expect(errc::manifest_mismatch, "rank 0 and rank 1 have the same device", 0, 22809);
  expect(errc::internal, "cudaErrorInvalidDevice", 77, 22809);
}

TEST_CASE("nccl: a set-up that does not end is given up on all ranks, and so is one that a rank leaves") {
  const watchdog dog("nccl: set-up");
  for (const bool leaves : {false, true}) {
    const emulated::session session;
    emulated::set_progress_polls(1 << 30);
    stories told(3);
    with_devices(3, [&](loopback control, emulated_rig&) {
      const int rank = control.rank();
      told.expect(rank, [&] {
        if (leaves && rank == 2) {
          throw sync_error(
              {errc::peer_lost, 2, -1, -1, {}, "the thread of rank 2 has ended, or it destroyed its backend"});
        }
        emulated_nccl(std::move(control), {}, {.timeout = std::chrono::milliseconds(leaves ? 100'000 : 50)});
      });
    });
    if (!leaves) {
      told.check(errc::timed_out, "NCCL is not set up within 50 ms");
    }
    CHECK(emulated::live().communicators == 0);
  }
}

TEST_CASE("nccl: all ranks compare where one wants to, and say so") {
  const watchdog dog("nccl: who compares");
  const emulated::session session;
  std::atomic<int> compare{0};
  with_devices(2, [&](loopback control, emulated_rig&) {
    const bool wants = control.rank() == 1;
    const emulated_nccl backend(std::move(control), {}, {.compares_collectives = wants});
    gradweave::description said;
    backend.describe(said);
    for (const auto& [key, value] : said.entries()) {
      compare += key == "compares_collectives" && value == "true" ? 1 : 0;
    }
  });
  CHECK(compare == 2);
}

TEST_CASE("nccl: the docs' example") {
  const watchdog dog("nccl: docs");
  const emulated::session session;
  emulated_cuda::kernels kernels;
  const cudaStream_t stream = nullptr;
  std::atomic<int> right{0};
  // [devices]
  gw::backend::run_loopback(2, [&](gw::backend::loopback control) {  // a thread for each of two devices
    if (cudaSetDevice(control.rank()) != cudaSuccess) {
      throw std::runtime_error("there are not two devices");
    }
    gw::backend::nccl backend(std::move(control), kernels);
    auto arena = backend.allocate_arena(1000 * sizeof(float));
    const gw::extent whole{arena.data(), 1000 * sizeof(float), 0};
    backend.enqueue({.operation = gw::collective::all_reduce,
                     .kind = gw::element_kind::float32,
                     .reduce = {.divisor = 2},
                     .data = {&whole, 1}},
                    stream);
    right += cudaStreamSynchronize(stream) == cudaSuccess ? 1 : 0;  // or a lane waits for its event
  });
  // [/devices]
  CHECK(right == 2);
}

TEST_CASE("nccl: an arena is plain memory where NCCL gives none, and the report says so") {
  const watchdog dog("nccl: arena");
  const emulated::session session;
  with_nccl(1, {}, [&](emulated_nccl backend, emulated_rig&) {
    const auto arena_in_words = [&] {
      gradweave::description said;
      backend.describe_here(said);
      return said.entries().front().value;
    };
    const auto first = backend.allocate_arena(64);
    CHECK(arena_in_words() == "ncclMemAlloc, registered");
    CHECK(emulated::live().registrations == 1);
    emulated::fail_call("ncclCommRegister", 1, ncclInvalidUsage);
    CHECK(backend.allocate_arena(64).data() != nullptr);
    CHECK(arena_in_words().starts_with("ncclMemAlloc, not registered (ncclCommRegister: invalid usage"));
    emulated::fail_call("ncclMemAlloc", 1, ncclUnhandledCudaError);
    CHECK(backend.allocate_arena(64).data() != nullptr);
    CHECK(arena_in_words().starts_with("cudaMalloc, not registered (ncclMemAlloc: unhandled cuda error"));
    emulated::fail_call("ncclMemAlloc", 1, ncclUnhandledCudaError);
    emulated::fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
    CHECK_THROWS_WITH_AS(backend.allocate_arena(64),
                         doctest::Contains("cudaMalloc of 64 bytes: cudaErrorMemoryAllocation"), sync_error);
  });
  CHECK(emulated::to_string(emulated::live()) == "");
}

TEST_CASE("nccl: averages are a sum and one multiplication, or NCCL's, the same on all ranks") {
  const watchdog dog("nccl: averages");
  for (const bool by_nccl : {false, true}) {
    const emulated::session session;
    std::atomic<int> sums{0};
    with_nccl(3, {.averages_by_nccl = by_nccl}, [&](emulated_nccl backend, emulated_rig& rig) {
      const cudaStream_t on = rig.make_stream();
      const one_float memory(backend);
      const float own = static_cast<float>(backend.rank());
      for (const std::uint32_t divisor : {3U, 2U}) {
        memory.put(rig, on, own);
        auto request = memory.sum();
        request.reduce.divisor = divisor;
        backend.enqueue(request, on);
        CHECK(memory.take(on) == 3 * (divisor == 3 ? 1.0F / 3.0F : 0.5F));
      }
      CHECK(backend.payload_bytes_sent() == 2 * 2 * (4 - 4 / 3));
      ++sums;
    });
    CHECK(sums == 3);
  }
}

TEST_CASE("nccl: groups sum among themselves; collectives of a device run in the order of their launch") {
  const watchdog dog("nccl: groups");
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const emulated::session session;
    emulated::shuffle(seed);
    with_nccl(4, {}, [&](emulated_nccl backend, emulated_rig& rig) {
      auto row = backend.split(backend.rank() / 2, 0);
      auto column = backend.split(backend.rank() % 2, -backend.rank());
      CHECK(!backend.split(gradweave::no_group, 0));
      REQUIRE((row && column));
      CHECK(column->rank() == 1 - backend.rank() / 2);
      const cudaStream_t one = rig.make_stream(), other = rig.make_stream();
      const one_float a(*row), b(*column), all(backend);
      const float own = static_cast<float>(1 << backend.rank());
      a.put(rig, one, own);
      b.put(rig, other, own);
      CHECK(cudaStreamSynchronize(other) == cudaSuccess);
      rig.hold(one);
      row->enqueue(a.sum(), one);
      column->enqueue(b.sum(), other);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      CHECK(
          !rig.is_reached(other));  // a launch waits for the one before, also of another communicator on another stream
      gradweave::detail::gather_values(backend.control(), 0);
      rig.release(one);
      CHECK(a.take(one) == (backend.rank() < 2 ? 3.0F : 12.0F));
      CHECK(b.take(other) == (backend.rank() % 2 == 0 ? 5.0F : 10.0F));
      row.reset();
      all.put(rig, other, own);
      backend.enqueue(all.sum(), other);
      CHECK(all.take(other) == 15.0F);
    });
  }
}

TEST_CASE("nccl: a failure in a group is told in all, and aborts all communicators of a rank") {
  const watchdog dog("nccl: failure in a group");
  const emulated::session session;
  stories told(3);
  with_nccl(3, {}, [&](emulated_nccl backend, emulated_rig& rig) {
    auto pair = backend.split(backend.rank() == 2 ? 1 : 0, 0);
    const cudaStream_t on = rig.make_stream();
    const one_float value(*pair);
    if (backend.rank() == 1) {
      told.expect(1, [&] { throw sync_error(pair->abort({errc::aborted, 1, 3, -1, {}, "the reason"})); });
      CHECK_THROWS_AS(backend.enqueue(value.sum(), on), sync_error);
    } else if (backend.rank() == 0) {
      pair->enqueue(value.sum(), on);  // the other never comes
    }
    if (backend.rank() != 1) {
      told.expect(backend.rank(), [&] { sum_as_a_lane(backend, rig); });
    }
    CHECK(cudaStreamSynchronize(on) == cudaSuccess);
  });
  told.check(errc::aborted, "the reason");
}

TEST_CASE("nccl: where launches of two groups have another order on another rank, comparing tells") {
  const watchdog dog("nccl: launch order");
  std::atomic<int> named{0};
  // Which thread comes first is not for the test to say, so it may take some rounds until two orders meet.
  for (int round = 0; round < 100 && named == 0; ++round) {
    const emulated::session session;
    with_nccl(2, {.compares_collectives = true}, [&](emulated_nccl backend, emulated_rig& rig) {
      auto group = backend.split(0, backend.rank());
      const one_float value(backend);
      const std::array streams = {rig.make_stream(), rig.make_stream()};
      const auto launch = [&](emulated_nccl& by, cudaStream_t on) {
        CHECK(cudaSetDevice(backend.rank()) == cudaSuccess);
        try {
          by.enqueue(value.sum(), on);
        } catch (const sync_error& error) {
          const failure story = by.abort(error.cause());
          named += story.detail.find("collectives of another group came before") != std::string::npos ? 1 : 0;
        }
      };
      const bool is_first = backend.rank() == 0;
      std::thread beside([&] { launch(is_first ? backend : *group, streams[0]); });
      std::this_thread::sleep_for(std::chrono::milliseconds(round));
      launch(is_first ? *group : backend, streams[1]);
      beside.join();
      for (const cudaStream_t each : streams) {
        CHECK(cudaStreamSynchronize(each) == cudaSuccess);
      }
    });
  }
  CHECK(named > 0);
}
