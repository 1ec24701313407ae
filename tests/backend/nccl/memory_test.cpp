#include <gradweave/backend/nccl/memory.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <memory>
#include <utility>

#include <doctest/doctest.h>

#include "tests/emulated_cuda/control.hpp"

namespace emulated = emulated_cuda;
using gradweave::detail::nccl_communicator;
using gradweave::detail::nccl_memory;

TEST_CASE("nccl memory: moved, replaced and given back, with its registration, also after an abort") {
  const emulated::session session;
  {
    ncclUniqueId id;
    CHECK(ncclGetUniqueId(&id) == ncclSuccess);
    const auto one = std::make_shared<nccl_communicator>(0, std::chrono::seconds(5));
    one->begin_set_up(id, 1, 0);
    CHECK(one->is_set_up(std::chrono::seconds(5)));
    nccl_memory first(one, 64, true);
    nccl_memory second(one, 64, true);
    std::byte* const kept = second.data();
    CHECK(emulated::live().registrations == 2);
    first = std::move(second);
    CHECK(first.data() == kept);
    CHECK(emulated::live().device_allocations == 1);
    CHECK(emulated::live().registrations == 1);
    CHECK(nccl_memory(one, 64, false).in_words() == "ncclMemAlloc, not registered");
    CHECK(nccl_memory(one, 0, true).data() == nullptr);
    one->flag();
    one->abort();
  }
  CHECK(emulated::to_string(emulated::live()) == "");
}
