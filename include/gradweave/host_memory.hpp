/// @file
/// Memory of a process, for buffers that live long.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace gradweave {

/// Zeroed memory on a page boundary, every page of it touched. Throws std::bad_alloc.
class host_memory {
 public:
  static constexpr std::size_t alignment = 4096;

  explicit host_memory(std::size_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment))) {
    if (memory_ == nullptr) {
      throw std::bad_alloc();
    }
    std::fill_n(memory_.get(), bytes, std::byte{0});
  }

  std::byte* data() const { return memory_.get(); }

 private:
  struct release {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, release> memory_;
};

}  // namespace gradweave
