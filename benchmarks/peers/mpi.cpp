// The part of an MPI in //benchmarks:all_reduce: MPI_Allreduce in place. Usage: mpirun -n N peer_openmpi FOLDER
#include <cstddef>
#include <cstdio>
#include <string>

#include <mpi.h>

#include "benchmarks/peers/serve.hpp"

namespace {

class mpi_library {
 public:
  mpi_library() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  void barrier() { MPI_Barrier(MPI_COMM_WORLD); }

  std::string prepare(float* data, std::size_t elements) {
    data_ = data;
    elements_ = static_cast<int>(elements);
    for (int warm_up = 0; warm_up < 5; ++warm_up) {
      reduce();
    }
    return "default";
  }

  void reduce() { MPI_Allreduce(MPI_IN_PLACE, data_, elements_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }

 private:
  int rank_ = 0;
  int size_ = 1;
  float* data_ = nullptr;
  int elements_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);  // errors end the job with a text of their own
  int status = 2;
  if (count == 2) {
    mpi_library library;
    status = gradweave::bench::serve(library, arguments[1]);
  } else {
    std::fprintf(stderr,
                 "usage: mpirun -n N peer_... FOLDER; //benchmarks:all_reduce --peer openmpi|mpich starts it\n");
  }
  MPI_Finalize();
  return status;
}
