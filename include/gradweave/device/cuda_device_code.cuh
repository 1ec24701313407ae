/// @file
/// The kernels themselves, for nvcc. Each is one launch and one pass over memory, by 16 bytes where addresses allow that, in
/// strides of the grid. host_kernels.hpp has their twins on the host, bit for bit; cuda_kernels.cuh launches them.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <gradweave/device/arithmetic.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/float8_block.hpp>
#include <gradweave/extent.hpp>

namespace gradweave::detail {

inline constexpr unsigned warp_threads = 32;

// ---- memory ---------------------------------------------------------------------------------------------------------

__device__ inline bool is_word_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % word_bytes == 0;
}

/// Elements that are read and written at once.
template <class T, int Count>
struct alignas(sizeof(T) * Count <= word_bytes ? sizeof(T) * Count : word_bytes) elements {
  T at[Count];
};

/// `count` elements, at most Count, from `from`: at once where all of them are there and the address is aligned, which is
/// the same for all threads of a launch but the last.
template <class T, int Count>
__device__ elements<T, Count> load_elements(const T* from, std::size_t count) {
  elements<T, Count> loaded{};
  if (count >= std::size_t{Count} && reinterpret_cast<std::uintptr_t>(from) % alignof(elements<T, Count>) == 0) {
    return *reinterpret_cast<const elements<T, Count>*>(from);
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if (static_cast<std::size_t>(i) < count) {
      loaded.at[i] = from[i];
    }
  }
  return loaded;
}

template <class T, int Count>
__device__ void store_elements(T* to, const elements<T, Count>& stored, std::size_t count) {
  if (count >= std::size_t{Count} && reinterpret_cast<std::uintptr_t>(to) % alignof(elements<T, Count>) == 0) {
    *reinterpret_cast<elements<T, Count>*>(to) = stored;
    return;
  }
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    if (static_cast<std::size_t>(i) < count) {
      to[i] = stored.at[i];
    }
  }
}

__device__ inline std::size_t thread_of_grid() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t threads_of_grid() { return std::size_t{gridDim.x} * blockDim.x; }

// ---- gather and scatter ---------------------------------------------------------------------------------------------

struct device_extents {
  const extent* extents = nullptr;
  std::size_t count = 0;
  std::size_t bytes = 0;
};

/// Calls `whole(extents' side, offset)` for each word of this block's tile that lies in one extent at an aligned address, and
/// `part(extents' side, offset)` for each element of the others. Each thread sees its words in order.
template <class Unit, class Whole, class Part>
__device__ void for_each_word(const device_extents& table, std::size_t tile, Whole&& whole, Part&& part) {
  const std::size_t tile_begin = tile * tile_bytes;
  const std::size_t tile_end = min(table.bytes, tile_begin + tile_bytes);
  // Once a tile, by all threads alike: a word then searches among the tile's extents only.
  const std::size_t first = extent_at(table.extents, 0, table.count, tile_begin);
  const std::size_t last = extent_at(table.extents, first, table.count, tile_end - 1) + 1;
  for (std::size_t begin = tile_begin + threadIdx.x * word_bytes; begin < tile_end;
       begin += tile_threads * word_bytes) {
    std::size_t index = extent_at(table.extents, first, last, begin);
    extent piece = table.extents[index];
    std::byte* const memory = piece.memory + (begin - piece.offset);
    if (begin + word_bytes <= piece.offset + piece.bytes && is_word_aligned(memory)) {
      whole(memory, begin);
      continue;
    }
    const std::size_t end = min(tile_end, begin + word_bytes);
    for (std::size_t at = begin; at < end; at += sizeof(Unit)) {
      if (at >= piece.offset + piece.bytes) {
        piece = table.extents[++index];
      }
      part(piece.memory + (at - piece.offset), at);
    }
  }
}

template <class Unit>
__global__ void __launch_bounds__(tile_threads) gather_kernel(device_extents table, std::byte* packed) {
  for (std::size_t tile = blockIdx.x; tile < tiles_of(table.bytes); tile += gridDim.x) {
    for_each_word<Unit>(
        table, tile,
        [&](const std::byte* memory, std::size_t at) {
          *reinterpret_cast<uint4*>(packed + at) = *reinterpret_cast<const uint4*>(memory);
        },
        [&](const std::byte* memory, std::size_t at) {
          *reinterpret_cast<Unit*>(packed + at) = *reinterpret_cast<const Unit*>(memory);
        });
  }
}

template <class Unit>
__global__ void __launch_bounds__(tile_threads) scatter_kernel(device_extents table, const std::byte* packed) {
  for (std::size_t tile = blockIdx.x; tile < tiles_of(table.bytes); tile += gridDim.x) {
    for_each_word<Unit>(
        table, tile,
        [&](std::byte* memory, std::size_t at) {
          *reinterpret_cast<uint4*>(memory) = *reinterpret_cast<const uint4*>(packed + at);
        },
        [&](std::byte* memory, std::size_t at) {
          *reinterpret_cast<Unit*>(memory) = *reinterpret_cast<const Unit*>(packed + at);
        });
  }
}

/// The sum over a block's threads, pairwise; thread 0 has it. All threads call it.
__device__ inline scatter_summary pairwise_sum(const scatter_summary& own) {
  __shared__ double norms[tile_threads];
  __shared__ std::uint64_t counts[tile_threads];
  norms[threadIdx.x] = own.squared_norm;
  counts[threadIdx.x] = own.non_finite;
  __syncthreads();
  for (unsigned half = tile_threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      norms[threadIdx.x] += norms[threadIdx.x + half];
      counts[threadIdx.x] += counts[threadIdx.x + half];
    }
    __syncthreads();
  }
  const scatter_summary sum{norms[0], counts[0]};
  __syncthreads();  // before the next call writes
  return sum;
}

/// Scatters, leaves each tile's summary in `tiles`, and the block that is last to arrive adds those up. `arrived` is 0 before
/// and after.
template <class T>
__global__ void __launch_bounds__(tile_threads)
    scatter_and_summarize_kernel(device_extents table, const std::byte* packed, scatter_summary* tiles,
                                 unsigned* arrived, scatter_summary* summary) {
  constexpr int in_word = word_bytes / sizeof(T);
  for (std::size_t tile = blockIdx.x; tile < tiles_of(table.bytes); tile += gridDim.x) {
    scatter_summary own;
    for_each_word<T>(
        table, tile,
        [&](std::byte* memory, std::size_t at) {
          const auto word = *reinterpret_cast<const elements<T, in_word>*>(packed + at);
          *reinterpret_cast<elements<T, in_word>*>(memory) = word;
#pragma unroll
          for (int i = 0; i < in_word; ++i) {
            add_square(own, word.at[i]);
          }
        },
        [&](std::byte* memory, std::size_t at) {
          const T value = *reinterpret_cast<const T*>(packed + at);
          *reinterpret_cast<T*>(memory) = value;
          add_square(own, value);
        });
    const scatter_summary sum = pairwise_sum(own);
    if (threadIdx.x == 0) {
      tiles[tile] = sum;
    }
  }
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    __threadfence();  // the summaries are seen before the arrival is
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
    __threadfence();
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  scatter_summary own;
  for (std::size_t tile = threadIdx.x; tile < tiles_of(table.bytes); tile += tile_threads) {
    add(own, scatter_summary{__ldcg(&tiles[tile].squared_norm), __ldcg(&tiles[tile].non_finite)});
  }
  const scatter_summary total = pairwise_sum(own);
  if (threadIdx.x == 0) {
    *summary = total;
  }
}

// ---- scale ----------------------------------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(tile_threads) scale_kernel(T* values, std::size_t count, double factor) {
  constexpr int in_word = word_bytes / sizeof(T);
  // Up to the first aligned element one by one, and what remains at the end.
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(values) % word_bytes / sizeof(T);
  const std::size_t head = min(count, misaligned == 0 ? 0 : in_word - misaligned);
  const std::size_t words = (count - head) / in_word;
  auto* const aligned = reinterpret_cast<elements<T, in_word>*>(values + head);
  for (std::size_t i = thread_of_grid(); i < words; i += threads_of_grid()) {
    elements<T, in_word> word = aligned[i];
#pragma unroll
    for (int j = 0; j < in_word; ++j) {
      word.at[j] = scaled(word.at[j], factor);
    }
    aligned[i] = word;
  }
  const std::size_t rest = count - words * in_word;  // fewer than two words
  const std::size_t i = thread_of_grid();
  if (i < rest) {
    T& value = values[i < head ? i : i + words * in_word];
    value = scaled(value, factor);
  }
}

// ---- encode and sum -------------------------------------------------------------------------------------------------

/// Adds up over a warp, all of whose threads call it.
__device__ inline void add_to(std::uint64_t* counter, unsigned own) {
  if (counter == nullptr) {
    return;
  }
  for (unsigned distance = warp_threads / 2; distance > 0; distance /= 2) {
    own += __shfl_xor_sync(~0u, own, distance);
  }
  if (threadIdx.x % warp_threads == 0 && own != 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(counter), static_cast<unsigned long long>(own));
  }
}

/// The values at `i`, with what is left of the last step.
template <int Count>
__device__ elements<float, Count> load_values(const encode_request& request, std::size_t i, std::size_t count) {
  elements<float, Count> values = load_elements<float, Count>(request.values + i, count);
  if (request.residual != nullptr) {
    const elements<float, Count> residuals = load_elements<float, Count>(request.residual + i, count);
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      values.at[j] = rounded_sum(values.at[j], residuals.at[j]);
    }
  }
  return values;
}

/// Encodes `count` of them, and returns how many are lost.
template <wire_format Format, int Count>
__device__ unsigned encode_values(const encode_request& request, const elements<float, Count>& values, std::size_t i,
                                  std::size_t count, std::int32_t exponent) {
  using element = typename wire_codec<Format>::element;
  elements<element, Count> wire;
  elements<float, Count> residuals;
  unsigned non_finite = 0;
#pragma unroll
  for (int j = 0; j < Count; ++j) {
    const auto encoded = encode_element<Format>(values.at[j], exponent);
    wire.at[j] = encoded.value;
    residuals.at[j] = encoded.residual;
    non_finite += encoded.non_finite && static_cast<std::size_t>(j) < count ? 1 : 0;
  }
  store_elements(reinterpret_cast<element*>(request.wire) + i, wire, count);
  if (request.residual != nullptr) {
    store_elements(request.residual + i, residuals, count);
  }
  return non_finite;
}

template <wire_format Format>
__global__ void __launch_bounds__(tile_threads) encode_kernel(encode_request request) {
  constexpr int at_once = word_bytes / sizeof(typename wire_codec<Format>::element);
  unsigned non_finite = 0;
  for (std::size_t i = thread_of_grid() * at_once; i < request.elements; i += threads_of_grid() * at_once) {
    const std::size_t count = min(request.elements - i, std::size_t{at_once});
    non_finite += encode_values<Format>(request, load_values<at_once>(request, i, count), i, count, 0);
  }
  add_to(request.non_finite, non_finite);
}

/// A warp a block of 128, so that its greatest magnitude never leaves registers.
template <wire_format Format>
__global__ void __launch_bounds__(tile_threads) encode_blocks_kernel(encode_request request) {
  constexpr int at_once = float8_block_elements / warp_threads;
  const std::size_t lane = threadIdx.x % warp_threads;
  unsigned non_finite = 0;
  for (std::size_t block = thread_of_grid() / warp_threads; block < float8_blocks(request.elements);
       block += threads_of_grid() / warp_threads) {
    const std::size_t i = block * float8_block_elements + lane * at_once;
    const std::size_t count = i < request.elements ? min(request.elements - i, std::size_t{at_once}) : 0;
    const elements<float, at_once> values = load_values<at_once>(request, i, count);
    std::uint32_t greatest = 0;
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      greatest = static_cast<std::size_t>(j) < count ? max(greatest, finite_magnitude(values.at[j])) : greatest;
    }
    for (unsigned distance = warp_threads / 2; distance > 0; distance /= 2) {
      greatest = max(greatest, __shfl_xor_sync(~0u, greatest, distance));
    }
    const std::int32_t exponent = float8_exponent<typename wire_codec<Format>::element>(greatest);
    if (lane == 0) {
      request.exponents[block] = exponent;
    }
    non_finite += encode_values<Format>(request, values, i, count, exponent);
  }
  add_to(request.non_finite, non_finite);
}

template <wire_format Format>
__global__ void __launch_bounds__(tile_threads) sum_kernel(sum_request request) {
  using element = typename wire_codec<Format>::element;
  // 8 halves are a word. Of 8-bit numbers a thread takes 4, which make a word of float32.
  constexpr int at_once = sizeof(element) == 2 ? 8 : 4;
  for (std::size_t i = thread_of_grid() * at_once; i < request.elements; i += threads_of_grid() * at_once) {
    const std::size_t count = min(request.elements - i, std::size_t{at_once});
    elements<float, at_once> sums{};
    for (std::size_t piece = 0; piece < request.pieces; ++piece) {
      const auto* const from = reinterpret_cast<const element*>(request.wire + piece * request.wire_stride_bytes) + i;
      const elements<element, at_once> wire = load_elements<element, at_once>(from, count);
      std::int32_t exponent = 0;
      if constexpr (has_exponents(Format)) {
        exponent = request.exponents[piece * request.exponent_stride_elements + i / float8_block_elements];
      }
#pragma unroll
      for (int j = 0; j < at_once; ++j) {
        const float value = wire_codec<Format>::decode(wire.at[j], exponent);
        sums.at[j] = piece == 0 ? value : rounded_sum(sums.at[j], value);
      }
    }
#pragma unroll
    for (int j = 0; j < at_once; ++j) {
      sums.at[j] = divided(sums.at[j], request.divisor);
    }
    store_elements(request.sum + i, sums, count);
  }
}

// ---- step records ---------------------------------------------------------------------------------------------------

// Templates, so that no translation unit has them unless it launches them.

/// By one thread: a record is 64 bytes.
template <class Request>
__global__ void __launch_bounds__(tile_threads) write_record_kernel(Request request) {
  if (threadIdx.x == 0) {
    request.own.non_finite = *request.non_finite;
    *request.non_finite = 0;
    *request.to = request.own;
  }
}

/// By one thread, which reads 64 bytes a rank.
template <class Request>
__global__ void __launch_bounds__(tile_threads) judge_records_kernel(Request request) {
  if (threadIdx.x == 0) {
    *request.verdict = verdict_on(request.records, request.ranks);
  }
}

}  // namespace gradweave::detail
