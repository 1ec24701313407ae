// Shows that NCCL's header lives with the library's and that NCCL links. It is built, never run.
#include <nccl.h>

#include <gradweave/gradweave.hpp>

int main() {
  int version = 0;
  return gradweave::version_major >= 0 && ncclGetVersion(&version) == ncclSuccess ? 0 : 1;
}
