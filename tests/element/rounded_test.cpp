#include <gradweave/element/rounded.hpp>

#include <doctest/doctest.h>

namespace detail = gradweave::detail;

TEST_CASE("rounded operations: are IEEE 754's") {
  CHECK(detail::rounded_sum(1.0f, 0x1p-24f) == 1.0f);
  CHECK(detail::rounded_product(0x1.000002p0f, 0x1.000002p0f) == 0x1.000004p0f);
  CHECK(detail::rounded_product(0x1.0000000000001p0, 0x1.0000000000001p0) == 0x1.0000000000002p0);
  CHECK(detail::rounded_quotient(1.0f, 3.0f) == 0x1.555556p-2f);
}
