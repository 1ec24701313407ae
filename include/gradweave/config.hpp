/// @file
/// What the compiler builds for. The only header that asks the compiler: every other one asks these macros, each of
/// which is always defined.
#pragma once

/// 1 where code may be specific to that architecture. Device passes of a CUDA compiler count as neither: they see
/// portable code only.
#if defined(__x86_64__) && !defined(__CUDA_ARCH__)
#define GRADWEAVE_X86_64 1
#else
#define GRADWEAVE_X86_64 0
#endif

#if defined(__aarch64__) && !defined(__CUDA_ARCH__)
#define GRADWEAVE_AARCH64 1
#else
#define GRADWEAVE_AARCH64 0
#endif

/// 1 under -ffast-math. Our arithmetic must not depend on it; what is reported about a build may.
#if defined(__FAST_MATH__)
#define GRADWEAVE_FAST_MATH 1
#else
#define GRADWEAVE_FAST_MATH 0
#endif

/// Compiles one function for a processor with these features, whatever the translation unit is built for. The caller
/// checks at run time that the processor has them.
#define GRADWEAVE_TARGET(features) __attribute__((target(features)))

/// For a loop that is written once and compiled into functions with different GRADWEAVE_TARGETs.
#define GRADWEAVE_ALWAYS_INLINE inline __attribute__((always_inline))

/// 1 in the passes in which a CUDA compiler compiles for a device.
#if defined(__CUDA_ARCH__)
#define GRADWEAVE_DEVICE_PASS 1
#else
#define GRADWEAVE_DEVICE_PASS 0
#endif

/// For a function that host and device share. Nothing, where the compiler is none for CUDA.
#if defined(__CUDACC__)
#define GRADWEAVE_HOST_DEVICE __host__ __device__
#else
#define GRADWEAVE_HOST_DEVICE
#endif
