#include <gradweave/backend/nccl/calls.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>

#include "tests/emulated_cuda/control.hpp"

namespace gd = gradweave::detail;

TEST_CASE("nccl calls: versions in words, old ones too, and which results are errors") {
  CHECK(gd::nccl_version_in_words(22809) == "2.28.9");
  CHECK(gd::nccl_version_in_words(21900) == "2.19.0");
  CHECK(gd::nccl_version_in_words(2708) == "2.7.8");
  CHECK(!gd::is_nccl_error(ncclInProgress));
  CHECK((gd::is_nccl_error(ncclInvalidArgument) && !gd::is_fatal(ncclInvalidArgument)));
  CHECK(gd::is_fatal(ncclRemoteError));
  CHECK(gd::nccl_failure("ncclSend", ncclRemoteError, nullptr, 3).rank == -1);
  CHECK(gd::nccl_failure("ncclSend", ncclSystemError, nullptr, 3).rank == 3);
}

TEST_CASE("nccl calls: a scope's device is its own, and the thread's is restored") {
  const emulated_cuda::session session;
  CHECK(cudaSetDevice(2) == cudaSuccess);
  int device = 0;
  {
    const gd::device_scope scope(5);
    scope.check();
    CHECK((cudaGetDevice(&device) == cudaSuccess && device == 5));
    const gd::device_scope none(99);
    CHECK_THROWS_AS(none.check(), gradweave::sync_error);
  }
  CHECK((cudaGetDevice(&device) == cudaSuccess && device == 2));
}
