/// @file
/// Memory that shows who goes past its end: writes by canaries, reads by a page that nobody may touch (POSIX mmap).
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <concepts>
#include <csignal>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gradweave::testing {

/// Bytes between two canaries of 64 bytes. They begin on a cache line.
class canaried_memory {
 public:
  explicit canaried_memory(std::size_t bytes, std::byte fill = std::byte{0})
      : count_(bytes), memory_(bytes + 3 * canary_bytes, canary) {
    void* aligned = memory_.data() + canary_bytes;
    std::size_t room = bytes + 2 * canary_bytes;
    begin_ = static_cast<std::byte*>(std::align(canary_bytes, bytes, aligned, room));
    std::fill_n(begin_, bytes, fill);
  }
  canaried_memory(const canaried_memory&) = delete;
  canaried_memory& operator=(const canaried_memory&) = delete;

  std::span<std::byte> bytes() const { return {begin_, count_}; }

  /// The bytes as elements of T, as many as fit.
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(begin_), count_ / sizeof(T)};
  }

  bool intact() const { return untouched(begin_ - canary_bytes) && untouched(begin_ + count_); }

 private:
  static constexpr std::size_t canary_bytes = 64;
  static constexpr std::byte canary{0xc5};

  static bool untouched(const std::byte* begin) {
    return std::all_of(begin, begin + canary_bytes, [](std::byte b) { return b == canary; });
  }

  std::size_t count_;
  std::vector<std::byte> memory_;
  std::byte* begin_ = nullptr;
};

/// Bytes that end where a page begins that can be neither read nor written.
class guarded_memory {
 public:
  explicit guarded_memory(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t usable = (bytes + page - 1) / page * page;
    mapped_bytes_ = usable + page;
    void* mapped = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) {
      throw std::bad_alloc();
    }
    mapped_ = static_cast<std::byte*>(mapped);
    ::mprotect(mapped_ + usable, page, PROT_NONE);
    bytes_ = {mapped_ + usable - bytes, bytes};
  }
  guarded_memory(const guarded_memory&) = delete;
  guarded_memory& operator=(const guarded_memory&) = delete;
  ~guarded_memory() { ::munmap(mapped_, mapped_bytes_); }

  std::span<std::byte> bytes() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(bytes_.data()), bytes_.size() / sizeof(T)};
  }

 private:
  std::byte* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::span<std::byte> bytes_;
};

/// Runs `action` in a child process, where it may crash; whether it returned. Call it while no other thread runs.
template <std::invocable Action>
bool survives(Action&& action) {
  const ::pid_t child = ::fork();
  if (child == -1) {
    throw std::runtime_error("survives: fork failed");
  }
  if (child == 0) {
    // The crash is expected: no core file, and no word of it from a test framework or a sanitizer.
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    std::signal(SIGSEGV, SIG_DFL);
    std::signal(SIGBUS, SIG_DFL);
    std::signal(SIGABRT, SIG_DFL);
    try {
      std::forward<Action>(action)();
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) == -1) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace gradweave::testing
