// What is summed, and what has to come out. The programs of the peers use the same.
#pragma once

#include <cstddef>

namespace gradweave::bench {

/// Rank r's element i, small enough that every kind holds the sum.
template <class T>
T value_of(int rank, std::size_t i) {
  return static_cast<T>((i * 3 + static_cast<std::size_t>(rank)) % 5);
}

template <class T>
T sum_of(int size, std::size_t i) {
  T sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    sum = static_cast<T>(sum + value_of<T>(rank, i));
  }
  return sum;
}

}  // namespace gradweave::bench
