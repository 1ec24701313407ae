/// @file
/// Memory of the device for NCCL: its own allocator's, which some networks and NVLink reach without a copy, registered; or plain
/// memory where that can't be had.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/backend/nccl/communicator.hpp>
#include <gradweave/error.hpp>

namespace gradweave::detail {

/// Owns zeroed memory of a communicator's device. What is on streams has to be over before it is given back.
class nccl_memory {
 public:
  /// Throws sync_error where there is no memory, or the device fails.
  nccl_memory(std::shared_ptr<nccl_communicator> communicator, std::size_t bytes, bool registers)
      : communicator_(std::move(communicator)) {
    const device_scope scope(communicator_->device());
    scope.check();
    if (bytes == 0) {
      return;
    }
    void* allocated = nullptr;
    if (const ncclResult_t code = ncclMemAlloc(&allocated, bytes); code != ncclSuccess) {
      note_ = nccl_failure("ncclMemAlloc", code, nullptr, -1).detail;
      static_cast<void>(cudaGetLastError());  // which would be taken for the next call's
      is_plain_ = true;
      check_runtime(cudaMalloc(&allocated, bytes), ("cudaMalloc of " + std::to_string(bytes) + " bytes").c_str());
    }
    memory_ = static_cast<std::byte*>(allocated);
    try {
      check_runtime(cudaMemset(memory_, 0, bytes), "cudaMemset of an arena");
      check_runtime(cudaStreamSynchronize(nullptr), "cudaMemset of an arena");
      if (registers && !is_plain_) {
        register_memory(bytes);
      }
    } catch (...) {
      release();
      throw;
    }
  }
  nccl_memory(nccl_memory&& other) noexcept
      : communicator_(std::move(other.communicator_)),
        memory_(std::exchange(other.memory_, nullptr)),
        registration_(std::exchange(other.registration_, nullptr)),
        is_plain_(other.is_plain_),
        note_(std::move(other.note_)) {}
  nccl_memory& operator=(nccl_memory&& other) noexcept {
    nccl_memory taken(std::move(other));
    std::swap(communicator_, taken.communicator_);
    std::swap(memory_, taken.memory_);
    std::swap(registration_, taken.registration_);
    std::swap(is_plain_, taken.is_plain_);
    std::swap(note_, taken.note_);
    return *this;
  }
  ~nccl_memory() { release(); }

  std::byte* data() const { return memory_; }

  /// "ncclMemAlloc, registered", or what came instead and why.
  std::string in_words() const {
    const std::string what = is_plain_ ? "cudaMalloc" : "ncclMemAlloc";
    return what + (registration_ != nullptr ? ", registered" : ", not registered") +
           (note_.empty() ? "" : " (" + note_ + ")");
  }

 private:
  /// Only speed depends on it, so a failure is no error; one that the communicator does not survive shows at the next call.
  void register_memory(std::size_t bytes) {
    try {
      communicator_->call("ncclCommRegister", [&](ncclComm_t communicator) {
        return ncclCommRegister(communicator, memory_, bytes, &registration_);
      });
    } catch (const sync_error& error) {
      registration_ = nullptr;
      note_ = error.cause().detail;
    }
  }

  void release() noexcept {
    if (memory_ == nullptr) {
      return;
    }
    const device_scope scope(communicator_->device());
    if (registration_ != nullptr && !communicator_->is_flagged()) {
      try {
        communicator_->call("ncclCommDeregister",
                            [&](ncclComm_t communicator) { return ncclCommDeregister(communicator, registration_); });
      } catch (...) {  // it goes with the communicator
      }
    }
    if (is_plain_) {
      static_cast<void>(cudaFree(memory_));
    } else {
      static_cast<void>(ncclMemFree(memory_));
    }
    memory_ = nullptr;
  }

  std::shared_ptr<nccl_communicator> communicator_;
  std::byte* memory_ = nullptr;
  void* registration_ = nullptr;
  bool is_plain_ = false;
  std::string note_;
};

}  // namespace gradweave::detail
