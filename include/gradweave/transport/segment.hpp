/// @file
/// A segment: memory that several processes map. It has no name, so nothing of it is left once nobody maps it, and only
/// who is handed its descriptor can (memfd_create(2)). Its size is sealed: nobody can cut off what others map.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <gradweave/descriptor.hpp>

namespace gradweave {

/// A segment as one process maps it. Every page of it is touched at the start: the first touch of a page costs more than
/// reducing it does.
class segment {
 public:
  segment() = default;

  /// A new one, zeroed. Throws std::system_error.
  static segment create(std::size_t bytes) {
    descriptor memory(::memfd_create("gradweave", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    const auto size = static_cast<off_t>(bytes == 0 ? 1 : bytes);
    // Reserves the memory now: a page that is not there later would kill the process.
    if (!memory || ::ftruncate(memory.number(), size) != 0 || ::posix_fallocate(memory.number(), 0, size) != 0 ||
        ::fcntl(memory.number(), F_ADD_SEALS, seals) != 0) {
      fail("making shared memory");
    }
    return segment(std::move(memory), static_cast<std::size_t>(size));
  }

  /// One that another process made. Throws std::system_error where it is none, or its size is not sealed.
  static segment adopt(descriptor memory) {
    struct stat about{};
    const int has = ::fcntl(memory.number(), F_GET_SEALS);
    if (has < 0 || (has & seals) != seals || ::fstat(memory.number(), &about) != 0 || about.st_size <= 0) {
      errno = EINVAL;
      fail("taking over shared memory that is not sealed");
    }
    return segment(std::move(memory), static_cast<std::size_t>(about.st_size));
  }

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return data_.get_deleter().bytes; }
  /// For handing it over; none once it is closed.
  int handle() const { return memory_.number(); }
  /// The mapping stays.
  void close_handle() { memory_.close(); }

 private:
  static constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

  struct unmap {
    std::size_t bytes;
    void operator()(std::byte* data) const { ::munmap(data, bytes); }
  };

  segment(descriptor memory, std::size_t bytes) : memory_(std::move(memory)) {
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_.number(), 0);
    if (mapped == MAP_FAILED) {
      fail("mapping shared memory");
    }
    data_ = {static_cast<std::byte*>(mapped), unmap{bytes}};
  }

  [[noreturn]] static void fail(const char* what) {
    throw std::system_error(errno, std::generic_category(), std::string("gradweave: ") + what);
  }

  descriptor memory_;
  std::unique_ptr<std::byte, unmap> data_;
};

}  // namespace gradweave
