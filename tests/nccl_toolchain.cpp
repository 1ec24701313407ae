// Shows that NCCL's header lives with the library's, and that the backend links with NCCL. It is built, never run.
#include <nccl.h>

#include <utility>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/backend/nccl.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/gradweave.hpp>

namespace {

/// Does nothing, on streams of CUDA's.
struct no_kernels {
  using stream = cudaStream_t;
  void scale(stream, const gradweave::scale_request&) const {}
};

}  // namespace

int main() {
  auto ranks = gradweave::backend::make_loopback(1);
  gradweave::backend::nccl backend(std::move(ranks.front()), no_kernels{});
  backend.enqueue({.operation = gradweave::collective::all_reduce, .kind = gradweave::element_kind::float32}, nullptr);
  backend.check();
  return backend.allocate_arena(64).data() == nullptr ? 1 : 0;
}
