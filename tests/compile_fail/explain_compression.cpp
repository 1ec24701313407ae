// EXPECT: compression: the policy must be copyable
// EXPECT: compression: the policy must have ==
// EXPECT: compression: describe\(description&\) must exist and be const
// EXPECT: compression: add `static constexpr collective_set collectives`
// EXPECT: compression: compresses\(element_kind\) must be const and return bool
// EXPECT: compression: prepare\(const bucket_layout&, program_world\) must be const and return a stage_program: scratch_bytes\(\), run\(int, span<byte>\) returning optional<collective_request>, non_finite\(\)
#include <gradweave/compression/concept.hpp>

struct nothing {
  nothing(const nothing&) = delete;
};

static_assert(gradweave::explain_compression<nothing>());
