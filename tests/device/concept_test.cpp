#include <gradweave/device/concept.hpp>

#include <cstddef>
#include <span>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_device_kernels<gt::device_kernels_archetype>());

namespace {

using base = gt::device_kernels_archetype;

struct is_fixed : base {
  using base::base;
  is_fixed(const is_fixed&) = delete;
};
static_assert(!gw::device_kernels<is_fixed>);

struct stream_is_fixed : base {
  using base::base;
  struct stream {
    stream(const stream&) = delete;
  };
};
static_assert(!gw::kernels_have_streams<stream_is_fixed> && !gw::device_kernels<stream_is_fixed>);

struct prepares_another_table : base {
  using base::base;
  int prepare(std::span<const gw::extent>, gw::element_kind) const { return 0; }
};
static_assert(!gw::kernels_prepare_extents<prepares_another_table> && !gw::device_kernels<prepares_another_table>);

struct table_is_fixed : base {
  using base::base;
  struct extent_table {
    extent_table(const extent_table&) = delete;
  };
};
static_assert(!gw::kernels_prepare_extents<table_is_fixed> && !gw::device_kernels<table_is_fixed>);

struct gather_is_not_const : base {
  using base::base;
  void gather(stream, extent_table&, std::byte*) {}
};
static_assert(!gw::kernels_can_gather<gather_is_not_const> && !gw::device_kernels<gather_is_not_const>);

struct scatter_without_summary : base {
  using base::base;
  void scatter(stream, extent_table&, const std::byte*) const {}
};
static_assert(!gw::kernels_can_scatter<scatter_without_summary> && !gw::device_kernels<scatter_without_summary>);

struct scatter_changes_what_it_reads : base {
  using base::base;
  void scatter(stream, extent_table&, std::byte*, gw::scatter_summary*) const {}
};
static_assert(!gw::kernels_can_scatter<scatter_changes_what_it_reads>);

struct scale_without_stream : base {
  using base::base;
  void scale(const gw::scale_request&) const {}
};
static_assert(!gw::kernels_can_scale<scale_without_stream> && !gw::device_kernels<scale_without_stream>);

struct encode_changes_its_request : base {
  using base::base;
  void encode(stream, gw::encode_request&) const {}
};
static_assert(!gw::kernels_can_encode<encode_changes_its_request> && !gw::device_kernels<encode_changes_its_request>);

struct sum_takes_something_else : base {
  using base::base;
  void sum(stream, const gw::encode_request&) const {}
};
static_assert(!gw::kernels_can_sum<sum_takes_something_else> && !gw::device_kernels<sum_takes_something_else>);

struct record_goes_nowhere : base {
  using base::base;
  void write_record(const gw::record_request&) const {}
};
static_assert(!gw::kernels_can_record<record_goes_nowhere> && !gw::device_kernels<record_goes_nowhere>);

struct judge_is_not_const : base {
  using base::base;
  void judge_records(stream, const gw::judge_request&) {}
};
static_assert(!gw::kernels_can_judge<judge_is_not_const> && !gw::device_kernels<judge_is_not_const>);

static_assert(!gw::has_exponents(gw::wire_format::bfloat16) && gw::has_exponents(gw::wire_format::float8_e5m2));

}  // namespace

TEST_CASE("wire_format: has the numbers of element_kind") {
  CHECK(static_cast<int>(gw::wire_format::float32) == static_cast<int>(gw::element_kind::float32));
  CHECK(static_cast<int>(gw::wire_format::float16) == static_cast<int>(gw::element_kind::float16));
  CHECK(static_cast<int>(gw::wire_format::bfloat16) == static_cast<int>(gw::element_kind::bfloat16));
}
