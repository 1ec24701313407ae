/// @file
/// The arithmetic of the emulated collectives, element by element: sums in rank order, rounded to the type at each
/// addition as NCCL's are at each hop. Averages of floating types multiply by a rounded 1/N first, as NCCL's do; of integers
/// they divide the sum.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gradweave/element/bfloat16.hpp>
#include <gradweave/element/float16.hpp>
#include <gradweave/element/float8.hpp>

namespace emulated_cuda::detail {

/// Calls `use(type_identity<T>)`.
template <class Use>
auto visit_type(ncclDataType_t type, Use&& use) {
  switch (type) {
    case ncclInt8: return use(std::type_identity<std::int8_t>{});
    case ncclUint8: return use(std::type_identity<std::uint8_t>{});
    case ncclInt32: return use(std::type_identity<std::int32_t>{});
    case ncclUint32: return use(std::type_identity<std::uint32_t>{});
    case ncclInt64: return use(std::type_identity<std::int64_t>{});
    case ncclUint64: return use(std::type_identity<std::uint64_t>{});
    case ncclFloat16: return use(std::type_identity<gradweave::float16>{});
    case ncclFloat64: return use(std::type_identity<double>{});
    case ncclBfloat16: return use(std::type_identity<gradweave::bfloat16>{});
    case ncclFloat8e4m3: return use(std::type_identity<gradweave::float8_e4m3>{});
    case ncclFloat8e5m2: return use(std::type_identity<gradweave::float8_e5m2>{});
    default: return use(std::type_identity<float>{});
  }
}

inline std::size_t type_bytes(ncclDataType_t type) {
  return visit_type(type, []<class T>(std::type_identity<T>) { return sizeof(T); });
}

/// What a type is computed in, and back.
template <class T>
auto widened(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return gradweave::to_float32(value);
  }
}

template <class T, class Wide>
T narrowed(Wide value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else if constexpr (std::is_same_v<T, gradweave::float16>) {
    return gradweave::to_float16(value);
  } else if constexpr (std::is_same_v<T, gradweave::bfloat16>) {
    return gradweave::to_bfloat16(value);
  } else {
    return gradweave::to_float8<T>(value);
  }
}

template <class T>
T combined(ncclRedOp_t operation, T a, T b) {
  const auto left = widened(a), right = widened(b);
  switch (operation) {
    case ncclProd: return narrowed<T>(left * right);
    case ncclMax: return narrowed<T>(std::max(left, right));
    case ncclMin: return narrowed<T>(std::min(left, right));
    default: return narrowed<T>(left + right);
  }
}

/// to[i] = the operation over sources[0][i], sources[1][i], ...
template <class T>
void reduce_as(ncclRedOp_t operation, const std::vector<const std::byte*>& sources, std::byte* to, std::size_t count) {
  constexpr bool is_integer = std::is_integral_v<T>;
  const auto ranks = static_cast<double>(sources.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto value_of = [&](const std::byte* source) {
      T value;
      std::memcpy(&value, source + i * sizeof(T), sizeof(T));
      if constexpr (!is_integer) {
        if (operation == ncclAvg) {
          using wide = decltype(widened(value));
          value = narrowed<T>(widened(value) * widened(narrowed<T>(static_cast<wide>(1 / ranks))));
        }
      }
      return value;
    };
    T result = value_of(sources[0]);
    for (std::size_t rank = 1; rank < sources.size(); ++rank) {
      result = combined(operation, result, value_of(sources[rank]));
    }
    if constexpr (is_integer) {
      if (operation == ncclAvg) {
        result = static_cast<T>(result / static_cast<T>(sources.size()));
      }
    }
    std::memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
}

inline void reduce(ncclDataType_t type, ncclRedOp_t operation, const std::vector<const std::byte*>& sources,
                   std::byte* to, std::size_t count) {
  visit_type(type, [&]<class T>(std::type_identity<T>) { reduce_as<T>(operation, sources, to, count); });
}

}  // namespace emulated_cuda::detail
