#include <gradweave/element/vectorized.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

namespace gw = gradweave;

// convert_test compares the vector path with the conversion of one element, in full.

TEST_CASE_TEMPLATE("vectorized: counts non-finite results past what a lane of the count can hold", Half, gw::float16,
                   gw::bfloat16) {
  if (gw::detail::best_instruction_set() == gw::detail::instruction_set::portable) {
    return;
  }
  for (const std::size_t elements : {std::size_t{8 * 32767}, std::size_t{8 * 32768}, std::size_t{8 * 70000 + 3}}) {
    const std::vector<std::uint32_t> infinities(elements, 0x7f80'0000u);
    std::vector<Half> out(elements);
    CHECK(gw::detail::vectorized<Half>::encode(reinterpret_cast<const std::byte*>(infinities.data()),
                                               reinterpret_cast<std::byte*>(out.data()), elements) == elements);
  }
}
