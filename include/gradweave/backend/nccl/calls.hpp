/// @file
/// What calls of NCCL and of the CUDA runtime have in common: which version, on which device, and what an error says.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <string>
#include <utility>

#include <gradweave/error.hpp>

namespace gradweave::detail {

/// 2.19 has ncclMemAlloc, registration of memory, and set-up that does not block.
inline constexpr int nccl_version_min = 21900;

static_assert(NCCL_VERSION_CODE >= nccl_version_min,
              "backend: the NCCL backend needs NCCL 2.19 or newer, and the nccl.h that was found is older");

/// "2.28.9".
inline std::string nccl_version_in_words(int code) {
  constexpr int first_with_five_digits = 10000;  // from 2.9 on
  const int major = code >= first_with_five_digits ? code / 10000 : code / 1000;
  const int minor = code >= first_with_five_digits ? code / 100 % 100 : code / 100 % 10;
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(code % 100);
}

/// Whether a call did not do what it should, now or later.
inline bool is_nccl_error(ncclResult_t code) { return code != ncclSuccess && code != ncclInProgress; }

/// Whether the communicator is of no more use. What is not, NCCL has found in the arguments, before it did anything.
inline bool is_fatal(ncclResult_t code) { return is_nccl_error(code) && code != ncclInvalidArgument; }

/// "ncclAllReduce: unhandled system error: socket closed by peer (NCCL 2.28.9)". The text in the middle is NCCL's last one,
/// which it keeps for the process: read it at once.
inline failure nccl_failure(const std::string& what, ncclResult_t code, ncclComm_t communicator, int rank) {
  int version = 0;
  static_cast<void>(ncclGetVersion(&version));
  const char* const last = ncclGetLastError(communicator);
  failure cause{code == ncclRemoteError ? errc::peer_lost : errc::internal, rank, -1, -1, {}, ""};
  cause.detail = what + ": " + ncclGetErrorString(code) + (last == nullptr || *last == '\0' ? "" : ": ") +
                 (last == nullptr ? "" : last) + " (NCCL " + nccl_version_in_words(version) + ")";
  if (code == ncclRemoteError) {
    cause.rank = -1;  // some other: NCCL does not say which
  }
  return cause;
}

/// Throws sync_error with the runtime's own words.
inline void check_runtime(cudaError_t code, const char* what) {
  if (code != cudaSuccess) {
    failure cause{errc::internal, -1, -1, -1, {}, ""};
    cause.detail = std::string(what) + ": " + cudaGetErrorName(code) + ": " + cudaGetErrorString(code);
    throw sync_error(std::move(cause));
  }
}

/// The version of the library that is loaded, which may be another than the header's. Throws sync_error for one too old.
inline int loaded_nccl_version() {
  int version = 0;
  if (const ncclResult_t code = ncclGetVersion(&version); code != ncclSuccess) {
    throw sync_error(nccl_failure("ncclGetVersion", code, nullptr, -1));
  }
  if (version < nccl_version_min) {
    throw sync_error({errc::internal,
                      -1,
                      -1,
                      -1,
                      {},
                      "the NCCL that is loaded is " + nccl_version_in_words(version) + ", and the backend needs " +
                          nccl_version_in_words(nccl_version_min) + " or newer; look at LD_LIBRARY_PATH"});
  }
  return version;
}

/// The calling thread's device is `device` until the end of the scope.
class device_scope {
 public:
  explicit device_scope(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess) {
      before_ = device;
    }
    code_ = before_ == device ? cudaSuccess : cudaSetDevice(device);
    is_changed_ = before_ != device && code_ == cudaSuccess;
  }
  device_scope(const device_scope&) = delete;
  device_scope& operator=(const device_scope&) = delete;
  ~device_scope() {
    if (is_changed_) {
      static_cast<void>(cudaSetDevice(before_));
    }
  }

  /// Throws sync_error where the device can't be had.
  void check() const { check_runtime(code_, "cudaSetDevice"); }

 private:
  int before_ = 0;
  cudaError_t code_ = cudaSuccess;
  bool is_changed_ = false;
};

}  // namespace gradweave::detail
