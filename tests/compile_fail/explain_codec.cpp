// EXPECT: codec: it must be copyable
// EXPECT: codec: it must have ==
// EXPECT: codec: describe\(description&\) must exist and be const
// EXPECT: codec: add `static constexpr std::size_t block_elements`, at least 1
// EXPECT: codec: supports\(element_kind\) must be const and return bool
// EXPECT: codec: wire_bytes\(std::size_t elements\) must be const and return std::size_t
// EXPECT: codec: encode\(span<const float>, span<byte>\) must be const and return std::size_t, the number of values that are not finite
// EXPECT: codec: decode\(span<const byte>, span<float>\) must be const
#include <gradweave/compression/concept.hpp>

struct nothing {
  nothing(const nothing&) = delete;
};

static_assert(gradweave::explain_codec<nothing>());
