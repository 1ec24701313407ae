/// @file
/// What device code needs of CUDA to be compiled by g++ and run on the host: the built-in variables and functions, and a grid
/// whose threads are fibers of one thread. It finds wrong indices, missing barriers and accesses out of bounds. It is no GPU: it
/// knows neither its memory model nor its arithmetic. Include it before device code.
#pragma once

#include <cuda_runtime.h>
#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

#undef __shared__
#undef __launch_bounds__
#define __shared__ static  // blocks run one after another, and their threads are fibers of one thread
#define __launch_bounds__(...)

inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;

namespace host_grid {

/// The threads of a block, each on a stack of its own. They run until all of them wait.
class block {
 public:
  explicit block(unsigned threads) : fibers_(threads), exchanged_(threads) {
    for (fiber& each : fibers_) {
      each.stack = std::make_unique<std::byte[]>(stack_bytes);
    }
  }

  static block& current() { return *current_; }

  void run(const std::function<void()>& body) {
    current_ = this;
    body_ = &body;
    for (fiber& each : fibers_) {
      ::getcontext(&each.context);
      each.context.uc_stack.ss_sp = each.stack.get();
      each.context.uc_stack.ss_size = stack_bytes;
      each.context.uc_link = &scheduler_;
      ::makecontext(&each.context, [] { current().enter(); }, 0);
      each.is = state::ready;
    }
    // Turned round each time, so that no thread can rely on others having run before it.
    for (bool forward = true; run_ready(forward); forward = !forward) {
      release();
    }
  }

  void wait_for_block() { wait(state::at_block); }

  template <class T>
  T exchange(T value, unsigned with) {
    static_assert(sizeof(T) <= sizeof(std::uint64_t));
    std::memcpy(&exchanged_[running_], &value, sizeof(T));
    wait(state::at_warp);
    T other;
    std::memcpy(&other, &exchanged_[running_ ^ with], sizeof(T));
    wait(state::at_warp);
    return other;
  }

 private:
  static constexpr std::size_t stack_bytes = 64 << 10;
  static constexpr unsigned warp = 32;
  enum class state : std::uint8_t { ready, at_block, at_warp, over };

  struct fiber {
    ::ucontext_t context{};
    std::unique_ptr<std::byte[]> stack;
    state is = state::over;
  };

  void enter() {
    (*body_)();
    fibers_[running_].is = state::over;
  }

  void wait(state where) {
    fibers_[running_].is = where;
    ::swapcontext(&fibers_[running_].context, &scheduler_);
  }

  /// Whether there was a thread to run.
  bool run_ready(bool forward) {
    bool any = false;
    for (unsigned i = 0; i < fibers_.size(); ++i) {
      running_ = forward ? i : static_cast<unsigned>(fibers_.size()) - 1 - i;
      if (fibers_[running_].is == state::ready) {
        any = true;
        threadIdx = {running_, 0, 0};
        ::swapcontext(&scheduler_, &fibers_[running_].context);
      }
    }
    return any;
  }

  bool are_all(unsigned first, unsigned last, state where) const {
    for (unsigned i = first; i < last; ++i) {
      if (fibers_[i].is != where) {
        return false;
      }
    }
    return true;
  }

  void set_all(unsigned first, unsigned last, state where) {
    for (unsigned i = first; i < last; ++i) {
      fibers_[i].is = where;
    }
  }

  /// Lets those go on who have waited for each other. Nobody may have left.
  void release() {
    const auto all = static_cast<unsigned>(fibers_.size());
    bool any = are_all(0, all, state::over);
    if (are_all(0, all, state::at_block)) {
      set_all(0, all, state::ready);
      any = true;
    }
    for (unsigned first = 0; first < all; first += warp) {
      if (are_all(first, first + warp, state::at_warp)) {
        set_all(first, first + warp, state::ready);
        any = true;
      }
    }
    if (!any) {
      throw std::logic_error("host_grid: threads wait for some that never come");
    }
  }

  inline static block* current_ = nullptr;
  std::vector<fiber> fibers_;
  std::vector<std::uint64_t> exchanged_;
  ::ucontext_t scheduler_{};
  const std::function<void()>* body_ = nullptr;
  unsigned running_ = 0;
};

/// Launches for basic_cuda_kernels: at once, on the caller.
struct launcher {
  template <class... Parameters>
  static void launch(unsigned blocks, unsigned threads, cudaStream_t, void (*kernel)(Parameters...),
                     const Parameters&... arguments) {
    block one(threads);
    gridDim = dim3(blocks);
    blockDim = dim3(threads);
    for (unsigned i = 0; i < blocks; ++i) {
      blockIdx = {i, 0, 0};
      one.run([&] { kernel(arguments...); });
    }
  }
};

}  // namespace host_grid

inline void __syncthreads() { host_grid::block::current().wait_for_block(); }
inline void __threadfence() {}

template <class T>
T __shfl_xor_sync(unsigned, T value, unsigned lanes) {
  return host_grid::block::current().exchange(value, lanes);
}

inline unsigned atomicInc(unsigned* counter, unsigned limit) {
  const unsigned old = *counter;
  *counter = old >= limit ? 0 : old + 1;
  return old;
}

inline unsigned long long atomicAdd(unsigned long long* counter, unsigned long long value) {
  const unsigned long long old = *counter;
  *counter += value;
  return old;
}

template <class T>
T __ldcg(const T* from) {
  return *from;
}

template <class T>
T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, T b) {
  return a < b ? b : a;
}
