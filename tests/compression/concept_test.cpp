#include <gradweave/compression/concept.hpp>

#include <cstddef>
#include <optional>
#include <span>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_codec<gt::codec_archetype>() && gw::explain_compression<gt::compression_archetype>());

namespace {

// ---- codec ----------------------------------------------------------------------------------------------------------

using codec_base = gt::codec_archetype;

struct codec_is_fixed : codec_base {
  using codec_base::codec_base;
  codec_is_fixed(const codec_is_fixed&) = delete;
};
static_assert(!gw::policy_value<codec_is_fixed> && !gw::codec<codec_is_fixed>);

struct codec_does_not_compare : codec_base {
  using codec_base::codec_base;
  friend bool operator==(const codec_does_not_compare&, const codec_does_not_compare&) = delete;
};
static_assert(!gw::policy_value<codec_does_not_compare> && !gw::codec<codec_does_not_compare>);

struct codec_does_not_describe : codec_base {
  using codec_base::codec_base;
  void describe() const {}
};
static_assert(!gw::describes_itself<codec_does_not_describe> && !gw::codec<codec_does_not_describe>);

struct block_is_empty : codec_base {
  using codec_base::codec_base;
  static constexpr std::size_t block_elements = 0;
};
static_assert(!gw::codec_has_block<block_is_empty> && !gw::codec<block_is_empty>);

struct block_is_a_member : codec_base {
  using codec_base::codec_base;
  std::size_t block_elements = 1;
};
static_assert(!gw::codec_has_block<block_is_a_member> && !gw::codec<block_is_a_member>);

struct block_is_negative : codec_base {
  using codec_base::codec_base;
  static constexpr int block_elements = -1;
};
static_assert(!gw::codec_has_block<block_is_negative> && !gw::codec<block_is_negative>);

struct supports_everything : codec_base {
  using codec_base::codec_base;
  bool supports() const { return true; }
};
static_assert(!gw::codec_has_support<supports_everything> && !gw::codec<supports_everything>);

struct wire_size_depends_on_values : codec_base {
  using codec_base::codec_base;
  std::size_t wire_bytes(std::span<const float> values) const { return values.size(); }
};
static_assert(!gw::fixed_wire_size<wire_size_depends_on_values> && !gw::codec<wire_size_depends_on_values>);

struct wire_size_is_an_int : codec_base {
  using codec_base::codec_base;
  int wire_bytes(std::size_t) const { return 0; }
};
static_assert(!gw::fixed_wire_size<wire_size_is_an_int> && !gw::codec<wire_size_is_an_int>);

struct encode_does_not_count : codec_base {
  using codec_base::codec_base;
  void encode(std::span<const float>, std::span<std::byte>) const {}
};
static_assert(!gw::codec_can_encode<encode_does_not_count> && !gw::codec<encode_does_not_count>);

struct encode_is_not_const : codec_base {
  using codec_base::codec_base;
  std::size_t encode(std::span<const float>, std::span<std::byte>) { return 0; }
};
static_assert(!gw::codec_can_encode<encode_is_not_const> && !gw::codec<encode_is_not_const>);

struct encode_changes_values : codec_base {
  using codec_base::codec_base;
  std::size_t encode(std::span<float>, std::span<std::byte>) const { return 0; }
};
static_assert(!gw::codec_can_encode<encode_changes_values> && !gw::codec<encode_changes_values>);

struct decode_is_not_const : codec_base {
  using codec_base::codec_base;
  void decode(std::span<const std::byte>, std::span<float>) {}
};
static_assert(!gw::codec_can_decode<decode_is_not_const> && !gw::codec<decode_is_not_const>);

// ---- stage program --------------------------------------------------------------------------------------------------

using program_base = gt::program_archetype;

struct program_is_fixed : program_base {
  using program_base::program_base;
  program_is_fixed(program_is_fixed&&) = delete;
};
static_assert(!gw::stage_program<program_is_fixed>);

struct scratch_is_an_int : program_base {
  using program_base::program_base;
  int scratch_bytes() const { return 0; }
};
static_assert(!gw::program_has_scratch<scratch_is_an_int> && !gw::stage_program<scratch_is_an_int>);

struct run_returns_a_request : program_base {
  using program_base::program_base;
  gw::collective_request run(int, std::span<std::byte>) { return {}; }
};
static_assert(!gw::host_stages<run_returns_a_request> && !gw::stage_program<run_returns_a_request>);

struct run_has_no_scratch : program_base {
  using program_base::program_base;
  std::optional<gw::collective_request> run(int) { return {}; }
};
static_assert(!gw::host_stages<run_has_no_scratch> && !gw::stage_program<run_has_no_scratch>);

struct non_finite_is_a_flag : program_base {
  using program_base::program_base;
  bool non_finite() const { return false; }
};
static_assert(!gw::program_counts_non_finite<non_finite_is_a_flag> && !gw::stage_program<non_finite_is_a_flag>);

// ---- compression policy ---------------------------------------------------------------------------------------------

using base = gt::compression_archetype;

struct is_fixed : base {
  using base::base;
  is_fixed(const is_fixed&) = delete;
};
static_assert(!gw::policy_value<is_fixed> && !gw::compression_policy<is_fixed>);

struct does_not_compare : base {
  using base::base;
  friend bool operator==(const does_not_compare&, const does_not_compare&) = delete;
};
static_assert(!gw::policy_value<does_not_compare> && !gw::compression_policy<does_not_compare>);

struct does_not_describe : base {
  using base::base;
  void describe() const {}
};
static_assert(!gw::describes_itself<does_not_describe> && !gw::compression_policy<does_not_describe>);

struct collectives_is_a_number : base {
  using base::base;
  static constexpr unsigned collectives = 0;
};
static_assert(!gw::compression_has_collectives<collectives_is_a_number>);
static_assert(!gw::compression_policy<collectives_is_a_number>);

struct collectives_is_a_member : base {
  using base::base;
  gw::collective_set collectives = {};
};
static_assert(!gw::compression_has_collectives<collectives_is_a_member>);
static_assert(!gw::compression_policy<collectives_is_a_member>);

struct compresses_any_kind : base {
  using base::base;
  bool compresses() const { return true; }
};
static_assert(!gw::compression_tells_kinds<compresses_any_kind> && !gw::compression_policy<compresses_any_kind>);

struct prepare_returns_no_program : base {
  using base::base;
  int prepare(const gw::bucket_layout&, gw::program_world) const { return 0; }
};
static_assert(!gw::compression_prepares<prepare_returns_no_program>);
static_assert(!gw::compression_policy<prepare_returns_no_program>);

struct prepare_is_not_const : base {
  using base::base;
  gt::program_archetype prepare(const gw::bucket_layout&, gw::program_world) { return gt::program_archetype(0); }
};
static_assert(!gw::compression_prepares<prepare_is_not_const> && !gw::compression_policy<prepare_is_not_const>);

}  // namespace

TEST_CASE("bucket_layout: is empty by default, in a world of one rank") {
  const gw::bucket_layout layout;
  CHECK(layout.elements == 0);
  CHECK(layout.members.empty());
  CHECK(layout.memory.empty());
  CHECK(gw::program_world{}.size == 1);
}

static_assert(gradweave::explain_stream_compression<gradweave::testing::stream_compression_archetype,
                                                    gradweave::testing::device_kernels_archetype>());

namespace {

struct enqueues_nowhere : gradweave::testing::stream_program_archetype {
  using stream_program_archetype::stream_program_archetype;
  std::optional<gradweave::collective_request> enqueue(int) { return {}; }
};
static_assert(!gradweave::stream_stages<enqueues_nowhere, gradweave::testing::device_kernels_archetype>);

}  // namespace
