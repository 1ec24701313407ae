/// @file
/// Memory from MPI_Alloc_mem, which a network may know beforehand, and which of it MPI may work on in place.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>
#include <vector>

#include <mpi.h>

#include <gradweave/backend/mpi/calls.hpp>
#include <gradweave/backend/mpi/library.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::backend::mpi {

/// `bytes` of memory on a cache line, of which MPI knows. With the turn.
class memory {
 public:
  static constexpr std::size_t alignment = 64;

  memory() = default;
  explicit memory(std::size_t bytes) : bytes_(bytes) {
    void* begin = nullptr;
    std::size_t room = bytes + alignment;
    if (MPI_Alloc_mem(static_cast<MPI_Aint>(room), MPI_INFO_NULL, static_cast<void*>(&begin)) != MPI_SUCCESS) {
      throw std::bad_alloc();
    }
    owned_.reset(begin);
    data_ = static_cast<std::byte*>(std::align(alignment, bytes, begin, room));
  }

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  /// Leaves it to the end of the process.
  void keep() { (void)owned_.release(); }

 private:
  struct release {
    void operator()(void* memory) const {
      if (is_alive()) {
        MPI_Free_mem(memory);
      }
    }
  };
  std::unique_ptr<void, release> owned_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// The arenas of one backend. A collective that was given up may still be under way inside MPI; so MPI is let only into memory
/// that can be kept until the process ends, which gradients of the program's own can't.
class arena_list {
 public:
  /// Whether MPI may work on it in place. With the turn.
  bool holds(std::span<const std::byte> where) const {
    const std::less_equal<const std::byte*> is_at_most;
    return std::any_of(arenas_.begin(), arenas_.end(), [&](const memory* each) {
      return is_at_most(each->data(), where.data()) &&
             is_at_most(where.data() + where.size(), each->data() + each->size());
    });
  }

  /// Whether MPI is at work on some of them. With the turn.
  void set_busy(bool busy) { is_busy_ = busy; }

 private:
  friend class arena;

  std::vector<const memory*> arenas_;
  bool is_busy_ = false;
};

/// Owns zeroed memory. Where MPI is still at work on it when it is destroyed, it is kept.
class arena {
 public:
  arena(std::shared_ptr<library> of, std::shared_ptr<arena_list> list, std::size_t bytes)
      : library_(std::move(of)), list_(std::move(list)) {
    {
      const std::lock_guard turn(library_->turn());
      memory_ = std::make_unique<memory>(bytes);
      list_->arenas_.push_back(memory_.get());
    }
    std::fill_n(memory_->data(), bytes, std::byte{0});
  }
  arena(arena&&) = default;
  arena& operator=(arena&& other) noexcept {
    std::swap(library_, other.library_);
    std::swap(list_, other.list_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~arena() {
    if (memory_) {
      const std::lock_guard turn(library_->turn());
      std::erase(list_->arenas_, memory_.get());
      if (list_->is_busy_) {
        memory_->keep();
      }
      memory_.reset();
    }
  }

  std::byte* data() const { return memory_->data(); }

 private:
  std::shared_ptr<library> library_;  // MPI ends after the last arena
  std::shared_ptr<arena_list> list_;
  std::unique_ptr<memory> memory_;
};

}  // namespace gradweave::backend::mpi
