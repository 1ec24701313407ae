// A rank of another library, which takes turns with gradweave's benchmark: it sleeps until it is told how much to reduce how
// often, reads that from one named pipe a rank, and rank 0 writes the time to another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "benchmarks/all_reduce/timing.hpp"
#include "benchmarks/all_reduce/values.hpp"

namespace gradweave::bench {

inline constexpr std::size_t page_bytes = 4096;

/// The first page boundary from there on: copies by the kernel are slower elsewhere.
inline float* at_page(float* memory) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  return memory + (page_bytes - address % page_bytes) % page_bytes / sizeof(float);
}

/// `Library` has `rank()`, `size()`, `prepare(data, elements)`, which is called before another size comes and returns what
/// it has chosen, in a word; `reduce()`, the sum in place; and `barrier()`.
template <class Library>
int serve(Library& library, const std::string& folder) {
  std::ifstream commands(folder + "/command." + std::to_string(library.rank()));
  std::ofstream answers;
  if (library.rank() == 0) {
    answers.open(folder + "/answer");
  }
  std::vector<float> memory;
  float* data = nullptr;
  std::size_t elements = 0;
  std::string chosen;
  std::size_t wrong = 0;
  std::size_t bytes = 0;
  std::size_t iterations = 0;
  while (commands >> bytes >> iterations) {
    if (elements != bytes / sizeof(float)) {
      elements = bytes / sizeof(float);
      memory.assign(elements + page_bytes / sizeof(float), 0);
      data = at_page(memory.data());
      chosen = library.prepare(data, elements);
      for (std::size_t i = 0; i < elements; ++i) {
        data[i] = value_of<float>(library.rank(), i);
      }
      library.reduce();
      wrong = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        wrong += data[i] == sum_of<float>(library.size(), i) ? 0 : 1;
      }
    }
    std::fill_n(data, elements, 0.0F);  // or sums of sums grow without bound
    library.barrier();
    const double time = time_of(iterations, [&] { library.reduce(); });
    library.barrier();
    if (library.rank() == 0) {
      answers << time << ' ' << wrong << ' ' << chosen << std::endl;
    }
  }
  return 0;
}

}  // namespace gradweave::bench
