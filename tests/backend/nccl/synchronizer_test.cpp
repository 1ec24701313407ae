// The whole of it, over the emulated device: gradients on devices, a lane on a stream of its own, collectives by NCCL.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/nccl.hpp>
#include <gradweave/gradweave.hpp>
#include <gradweave/overlap/cuda_stream.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/backend/nccl/rig.hpp"
#include "tests/emulated_cuda/control.hpp"
#include "tests/emulated_cuda/kernels.hpp"

namespace emulated = emulated_cuda;
namespace gw = gradweave;
using gw::tests::emulated_nccl;
using gw::tests::emulated_rig;
using gw::tests::with_nccl;

namespace {

using lane = gw::overlap::cuda_stream<emulated::kernels>;

/// A gradient on a device.
struct device_vector {
  float* memory = nullptr;
  std::size_t elements = 0;

  float* gradweave_data() { return memory; }
  std::array<std::size_t, 1> gradweave_shape() const { return {elements}; }
  gw::memory_space gradweave_space() const { return gw::memory_space::cuda; }
  void gradweave_rebind(void* other) { memory = static_cast<float*>(other); }
};

/// A rank that trains: three gradients in the arena, made on a stream.
class trainer {
 public:
  trainer(emulated_nccl backend, emulated_rig& rig)
      : rank_(backend.rank()), size_(backend.size()), rig_(rig), computing_(rig.make_stream()) {
    gw::manifest listed;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      slots_.push_back(listed.add("g" + std::to_string(i), gw::in_arena(tensors_[i])));
    }
    sync_.emplace(gw::synchronize(std::move(listed), std::move(backend), lane{}));
  }

  trainer(const trainer&) = delete;
  trainer& operator=(const trainer&) = delete;
  /// What is on the stream uses memory of this object, also where a step has thrown.
  ~trainer() {
    sync_.reset();
    CHECK(cudaStreamSynchronize(computing_) == cudaSuccess);
  }

  auto& synchronizer() { return *sync_; }

  /// Gradients become ready in an order of the rank's own.
  void step(int number) {
    sync_->step(computing_, [&](auto& open) {
      for (std::size_t k = 0; k < tensors_.size(); ++k) {
        const std::size_t i = (k + static_cast<std::size_t>(rank_ + number)) % tensors_.size();
        given_[i].assign(tensors_[i].elements, value(rank_, number, i));
        rig_.write(computing_, reinterpret_cast<std::byte*>(tensors_[i].memory), std::as_bytes(std::span(given_[i])));
        open.ready(slots_[i], computing_);
      }
    });
    std::uint32_t is_valid = 0;
    rig_.read(computing_, reinterpret_cast<const std::byte*>(sync_->step_valid()),
              std::as_writable_bytes(std::span(&is_valid, 1)));
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      std::vector<float> seen(tensors_[i].elements);
      rig_.read(computing_, reinterpret_cast<const std::byte*>(tensors_[i].memory),
                std::as_writable_bytes(std::span(seen)));
      CHECK(cudaStreamSynchronize(computing_) == cudaSuccess);
      float wanted = 0;
      for (int r = 0; r < size_; ++r) {
        wanted += value(r, number, i) / static_cast<float>(size_);
      }
      bool right = true;
      for (const float each : seen) {
        right = right && std::abs(each - wanted) <= 1e-6F * wanted;
      }
      CHECK((right || is_valid == 0));
    }
    valid_ += is_valid;
  }

  std::uint32_t valid_steps() const { return valid_; }

 private:
  static float value(int rank, int step, std::size_t slot) {
    return static_cast<float>(1 + rank + 10 * step + 100 * static_cast<int>(slot));
  }

  int rank_, size_;
  emulated_rig& rig_;
  cudaStream_t computing_;
  std::array<device_vector, 3> tensors_ = {{{nullptr, 5}, {nullptr, 3000}, {nullptr, 64}}};
  std::vector<gw::slot> slots_;
  std::array<std::vector<float>, 3> given_;
  std::uint32_t valid_ = 0;
  using synchronizer_type =
      decltype(gw::synchronize(std::declval<gw::manifest>(), std::declval<emulated_nccl>(), lane{}));
  std::optional<synchronizer_type> sync_;
};

}  // namespace

TEST_CASE("nccl synchronizer: averages on every rank, however streams and NCCL are delayed") {
  const gw::testing::watchdog dog("nccl synchronizer");
  for (const std::uint64_t seed : {0U, 1U, 2U}) {
    const emulated::session session;
    emulated::shuffle(seed);
    emulated::set_progress_polls(static_cast<int>(seed));
    with_nccl(1 + static_cast<int>(seed), {.compares_collectives = seed == 2},
              [](emulated_nccl backend, emulated_rig& rig) {
                trainer rank(std::move(backend), rig);
                for (int step = 0; step < 5; ++step) {
                  rank.step(step);
                }
                rank.synchronizer().synchronize();
                CHECK(rank.valid_steps() == 5);
              });
    CHECK(emulated::to_string(emulated::live()) == "");
  }
}

TEST_CASE("nccl synchronizer: an error of NCCL's in some step is told on every rank, in its words") {
  const gw::testing::watchdog dog("nccl synchronizer: error");
  for (const char* function : {"ncclAllReduce", "ncclCommGetAsyncError", "cudaStreamWaitEvent"}) {
    const emulated::session session;
    std::mutex mutex;
    std::vector<std::string> told;
    with_nccl(3, {}, [&](emulated_nccl backend, emulated_rig& rig) {
      const int own = backend.rank();
      try {
        trainer rank(std::move(backend), rig);
        for (int step = 0; step < 100; ++step) {
          if (step == 3 && own == 1) {
            const bool is_cuda = std::string(function).starts_with("cuda");
            is_cuda ? emulated::fail_call(function, 1, cudaErrorIllegalAddress)
                    : emulated::fail_call(function, 1, ncclSystemError);
          }
          rank.step(step);
        }
      } catch (const gw::sync_error& error) {
        std::lock_guard lock(mutex);
        told.push_back(error.what());
      }
    });
    REQUIRE(told.size() == 3);
    CHECK(told[0] == told[1]);
    CHECK(told[0] == told[2]);
    const bool names = told[0].find("cudaErrorIllegalAddress") != std::string::npos ||
                       told[0].find("unhandled system error") != std::string::npos;
    CHECK_MESSAGE(names, told[0]);
  }
}
