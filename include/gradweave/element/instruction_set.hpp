/// @file
/// Which vector instructions our loops may use, decided at run time, so that a program built for any processor of its
/// architecture gets the fast paths where they exist.
#pragma once

#include <cstdint>

#include <gradweave/config.hpp>

namespace gradweave::detail {

/// Paths through the same arithmetic: each yields the same bits. What a wider set than these offers (AVX-512) is used
/// where the program is built for it: the compiler vectorizes the portable loops.
enum class instruction_set : std::uint8_t {
  portable,  ///< what the translation unit is built for
  avx2,      ///< x86-64 with AVX2 and F16C
  neon,      ///< every aarch64
};

#if GRADWEAVE_X86_64

/// Marks functions for the vector path. FMA stays out: with it, compilers may fuse a product into a sum.
#define GRADWEAVE_VECTOR_TARGET GRADWEAVE_TARGET("avx2,f16c")

inline bool has_avx2_and_f16c() noexcept {
  // The answer is kept because cpuid traps in virtual machines, where it takes microseconds. Of the two features clang
  // 14 names only the first, which also says whether the operating system saves the registers.
  static const bool has = [] {
    std::uint32_t eax = 1, ebx = 0, ecx = 0, edx = 0;
    asm("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") != 0 && ((ecx >> 29) & 1u) != 0;
  }();
  return has;
}

#else

#define GRADWEAVE_VECTOR_TARGET

#endif

/// Whether this program, on this processor, can run that path.
inline bool supported([[maybe_unused]] instruction_set set) noexcept {
#if GRADWEAVE_X86_64
  return set == instruction_set::portable || (set == instruction_set::avx2 && has_avx2_and_f16c());
#elif GRADWEAVE_AARCH64
  return set != instruction_set::avx2;
#else
  return set == instruction_set::portable;
#endif
}

inline instruction_set best_instruction_set() noexcept {
#if GRADWEAVE_X86_64
  return has_avx2_and_f16c() ? instruction_set::avx2 : instruction_set::portable;
#elif GRADWEAVE_AARCH64
  return instruction_set::neon;
#else
  return instruction_set::portable;
#endif
}

}  // namespace gradweave::detail
