#include <gradweave/bucketing/slice.hpp>

#include <cstddef>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("slice_at: slices cover a slot in their order, begin at granules, and are about equal") {
  const std::size_t granule = slice_granule_elements;
  for (const std::size_t elements : {std::size_t{0}, std::size_t{1}, granule, 2 * granule - 1, 2 * granule,
                                     7 * granule + 333, 256 * granule, 1000 * granule + 5, std::size_t{1} << 60}) {
    CAPTURE(elements);
    const std::size_t most = slices_max(elements);
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{3}, most}) {
      if (count > most) {
        continue;
      }
      CAPTURE(count);
      std::size_t end = 0;
      bool in_order = true;
      for (std::size_t i = 0; i < count; ++i) {
        const slot_slice each = slice_at(elements, {i, count});
        const std::size_t share = elements / granule / count * granule;
        in_order = in_order && each.begin == end && each.begin % granule == 0 && each.elements >= share &&
                   each.elements < share + 2 * granule;
        end += each.elements;
      }
      CHECK(in_order);
      CHECK(end == elements);
    }
  }
  CHECK(slices_max(2 * granule - 1) == 1);
  CHECK(slices_max(2 * granule) == 2);
  CHECK(slices_max(std::size_t{1} << 60) == 256);
}
