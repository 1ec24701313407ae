/// @file
/// What ranks do with their elements when they meet: sum, minimum or maximum of two, and the division at the end.
///
/// Pointers need their elements' alignment only and must not overlap. The same inputs yield the same bits on every
/// instruction set and under -ffast-math. A sum's NaN may carry either operand's payload: an element is summed by one
/// rank and its bits are gathered, so that ranks agree all the same. Floating sums and quotients follow the processor's
/// flush-to-zero mode; set it alike on all ranks' threads.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include <gradweave/assert.hpp>
#include <gradweave/config.hpp>
#include <gradweave/element.hpp>
#include <gradweave/element/convert.hpp>
#include <gradweave/element/instruction_set.hpp>
#include <gradweave/element/loops.hpp>
#include <gradweave/element/quotient.hpp>

namespace gradweave {

/// How two elements become one. The values travel on the wire and never change.
///  - sum: float16 and bfloat16 add in float and round once a call; integers wrap.
///  - min, max: IEEE 754-2019 minimum and maximum, exact: a NaN on either side gives the canonical NaN, -0 is below +0.
enum class reduction_operation : std::uint8_t {
  sum = 1,
  min = 2,
  max = 3,
};

/// What an element ends as: the operation over all ranks' elements, divided by `divisor`.
struct reduction {
  reduction_operation operation = reduction_operation::sum;
  std::uint32_t divisor = 1;  ///< the world size, for an average; at most divisor_max

  friend constexpr bool operator==(const reduction&, const reduction&) = default;
};

/// The largest divisor: up to it every integer is a float, and quotients are those of the integer itself.
inline constexpr std::uint32_t divisor_max = 1u << 24;

namespace detail {

template <class T>
inline constexpr bool is_half = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class T, class Operation>
GRADWEAVE_ALWAYS_INLINE void reduce_loop(std::byte* __restrict accumulator, const std::byte* __restrict contribution,
                                         std::size_t elements, Operation operation) noexcept {
  const auto reduce_one = [&](std::size_t i) __attribute__((always_inline)) {
    std::byte* const to = accumulator + i * sizeof(T);
    store(to, operation(load<T>(to), load<T>(contribution + i * sizeof(T))));
  };
  std::size_t i = 0;
  for (; i + block_elements <= elements; i += block_elements) {
    for (std::size_t j = 0; j < block_elements; ++j) {
      reduce_one(i + j);
    }
  }
  for (; i < elements; ++i) {
    reduce_one(i);
  }
}

/// Of unsigned integers it wraps.
struct sum_of {
  template <class T>
  GRADWEAVE_ALWAYS_INLINE T operator()(T a, T b) const noexcept {
    return static_cast<T>(a + b);
  }
};

template <class T>
GRADWEAVE_VECTOR_TARGET void sum_vectorized(std::byte* accumulator, const std::byte* contribution,
                                            std::size_t elements) noexcept {
  reduce_loop<T>(accumulator, contribution, elements, sum_of{});
}

template <class T>
void sum_portable(std::byte* accumulator, const std::byte* contribution, std::size_t elements) noexcept {
  reduce_loop<T>(accumulator, contribution, elements, sum_of{});
}

/// The greater of two encodings in an order that is data, so that one loop an element width serves minimum and maximum
/// of signed, unsigned and floating elements. Integer comparisons, since -ffast-math leaves NaN and -0 to the compiler.
template <class Integer>
struct greater_of {
  Integer fold;      ///< inverts negative magnitudes: floats are sign and magnitude, and then compare like integers
  Integer flip;      ///< all ones turns the order round; the sign bit makes it that of unsigned integers
  Integer infinity;  ///< magnitudes beyond are NaN; for integers, no magnitude is
  Integer canonical_nan;

  GRADWEAVE_ALWAYS_INLINE Integer operator()(Integer a, Integer b) const noexcept {
    const Integer greater = key(a) < key(b) ? b : a;
    return (is_nan(a) | is_nan(b)) != 0 ? canonical_nan : greater;
  }

  GRADWEAVE_ALWAYS_INLINE Integer key(Integer bits) const noexcept {
    return static_cast<Integer>(bits ^ (bits < 0 ? fold : Integer{0}) ^ flip);
  }

  GRADWEAVE_ALWAYS_INLINE int is_nan(Integer bits) const noexcept {
    return (bits & std::numeric_limits<Integer>::max()) > infinity ? 1 : 0;
  }
};

template <class Integer>
void reduce_to_greater(std::byte* accumulator, const std::byte* contribution, std::size_t elements,
                       greater_of<Integer> operation) noexcept {
  reduce_loop<Integer>(accumulator, contribution, elements, operation);
}

/// What makes greater_of a maximum or, turned round, a minimum of T.
template <class T>
constexpr auto order_of(bool turned_round) noexcept {
  if constexpr (is_floating(element_kind_of<T>)) {
    using encoding = float_encoding<element_kind_of<T>>;
    using integer = typename encoding::integer;
    return greater_of<integer>{std::numeric_limits<integer>::max(), static_cast<integer>(turned_round ? -1 : 0),
                               encoding::infinity, encoding::canonical_nan};
  } else {
    using integer = std::make_signed_t<T>;
    constexpr integer base = std::is_signed_v<T> ? integer{0} : std::numeric_limits<integer>::min();
    return greater_of<integer>{0, static_cast<integer>(turned_round ? ~base : base),
                               std::numeric_limits<integer>::max(), 0};
  }
}

/// Calls `use(first element, floats, count)` for one stretch after another of float16s or bfloat16s, decoded, and
/// encodes what it made of the floats. The stretch stays in the first-level cache.
template <class Half, class Use>
void through_float32(instruction_set set, std::byte* values, std::size_t elements, Use&& use) noexcept {
  constexpr std::size_t stretch = 512;
  alignas(64) std::byte floats[stretch * sizeof(float)];
  for (std::size_t i = 0; i < elements; i += stretch) {
    const std::size_t count = elements - i < stretch ? elements - i : stretch;
    decode<Half, decode_mode::assign>(set, values + i * sizeof(Half), floats, count);
    use(i, floats, count);
    encode<Half>(set, floats, values + i * sizeof(Half), count);
  }
}

template <class T>
void sum_elements(instruction_set set, std::byte* accumulator, const std::byte* contribution,
                  std::size_t elements) noexcept {
  if constexpr (is_half<T>) {
    through_float32<T>(set, accumulator, elements, [&](std::size_t i, std::byte* sums, std::size_t count) {
      decode<T, decode_mode::add>(set, contribution + i * sizeof(T), sums, count);
    });
  } else if constexpr (std::is_integral_v<T>) {
    sum_portable<std::make_unsigned_t<T>>(accumulator, contribution, elements);
  } else if (set == instruction_set::portable) {
    sum_portable<T>(accumulator, contribution, elements);
  } else {
    sum_vectorized<T>(accumulator, contribution, elements);
  }
}

/// reduce_into() for one type on a chosen path, which must be supported.
template <class T>
void reduce_elements(instruction_set set, reduction_operation operation, std::byte* accumulator,
                     const std::byte* contribution, std::size_t elements) {
  switch (operation) {
    case reduction_operation::sum: return sum_elements<T>(set, accumulator, contribution, elements);
    case reduction_operation::min: return reduce_to_greater(accumulator, contribution, elements, order_of<T>(true));
    case reduction_operation::max: return reduce_to_greater(accumulator, contribution, elements, order_of<T>(false));
  }
  violate("reduce_into: not a reduction operation");
}

/// divide() for one type on a chosen path, which must be supported.
template <class T>
void divide_elements(instruction_set set, std::byte* values, std::size_t elements, std::uint32_t divisor) noexcept {
  if constexpr (is_half<T>) {
    through_float32<T>(set, values, elements, [&](std::size_t, std::byte* floats, std::size_t count) {
      divide_elements<float>(set, floats, count, divisor);
    });
  } else if constexpr (std::is_floating_point_v<T>) {
    divide_floats(set, values, elements, static_cast<T>(divisor));
  } else {
    using wide = decltype(T{} + std::conditional_t<std::is_signed_v<T>, std::int32_t, std::uint32_t>{});
    for (std::size_t i = 0; i < elements; ++i) {
      std::byte* const to = values + i * sizeof(T);
      store(to, static_cast<T>(wide{load<T>(to)} / static_cast<wide>(divisor)));
    }
  }
}

template <class T>
GRADWEAVE_ALWAYS_INLINE void scale_loop(std::byte* values, std::size_t elements, T factor) noexcept {
  std::size_t i = 0;
  for (; i + block_elements <= elements; i += block_elements) {
    for (std::size_t j = 0; j < block_elements; ++j) {
      store(values + (i + j) * sizeof(T), load<T>(values + (i + j) * sizeof(T)) * factor);
    }
  }
  for (; i < elements; ++i) {
    store(values + i * sizeof(T), load<T>(values + i * sizeof(T)) * factor);
  }
}

template <class T>
GRADWEAVE_VECTOR_TARGET void scale_vectorized(std::byte* values, std::size_t elements, T factor) noexcept {
  scale_loop(values, elements, factor);
}

template <class T>
void scale_portable(std::byte* values, std::size_t elements, T factor) noexcept {
  scale_loop(values, elements, factor);
}

/// scale() for one type on a chosen path, which must be supported.
template <class T>
void scale_elements(instruction_set set, std::byte* values, std::size_t elements, double factor) {
  if constexpr (is_half<T>) {
    through_float32<T>(set, values, elements, [&](std::size_t, std::byte* floats, std::size_t count) {
      scale_elements<float>(set, floats, count, factor);
    });
  } else if constexpr (!std::is_floating_point_v<T>) {
    violate("scale: only floating elements can be scaled");
  } else if (set == instruction_set::portable) {
    scale_portable(values, elements, static_cast<T>(factor));
  } else {
    scale_vectorized(values, elements, static_cast<T>(factor));
  }
}

}  // namespace detail

/// accumulator[i] = operation(accumulator[i], contribution[i]). A sum of float16 or bfloat16 rounds once a call: a ring
/// that calls this at each hop rounds at each hop. Throws contract_violation for an invalid kind or operation.
inline void reduce_into(reduction_operation operation, element_kind kind, std::byte* accumulator,
                        const std::byte* contribution, std::size_t elements) {
  visit_element(kind, [&]<class T>(std::type_identity<T>) {
    detail::reduce_elements<T>(detail::best_instruction_set(), operation, accumulator, contribution, elements);
  });
}

/// values[i] /= divisor. float32 and float64: the correctly rounded quotient. float16 and bfloat16: the float32
/// quotient, rounded once more to the format. Integers: truncated toward zero. The divisor is 1 to divisor_max, or it
/// throws contract_violation, as it does for an invalid kind.
inline void divide(element_kind kind, std::byte* values, std::size_t elements, std::uint32_t divisor) {
  require(divisor >= 1 && divisor <= divisor_max, "divide: the divisor must be 1 to 2^24");
  visit_element(kind, [&]<class T>(std::type_identity<T>) {
    if (divisor > 1) {
      detail::divide_elements<T>(detail::best_instruction_set(), values, elements, divisor);
    }
  });
}

/// values[i] *= factor, which is rounded to the format that is computed in: float for float16 and bfloat16. Throws
/// contract_violation for a kind that is not floating.
inline void scale(element_kind kind, std::byte* values, std::size_t elements, double factor) {
  visit_element(kind, [&]<class T>(std::type_identity<T>) {
    detail::scale_elements<T>(detail::best_instruction_set(), values, elements, factor);
  });
}

}  // namespace gradweave
