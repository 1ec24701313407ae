#include <gradweave/device/device_concept.hpp>

#include <cstddef>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_stream_device<gt::stream_device_archetype>());

namespace {

using base = gt::stream_device_archetype;

struct is_fixed : base {
  using base::base;
  is_fixed(const is_fixed&) = delete;
};
static_assert(!gw::stream_device<is_fixed>);

struct streams_do_not_compare : base {
  using base::base;
  struct stream {};
};
static_assert(!gw::device_has_stream<streams_do_not_compare> && !gw::stream_device<streams_do_not_compare>);

struct enter_is_not_const : base {
  using base::base;
  void enter() {}
};
static_assert(!gw::device_can_enter<enter_is_not_const> && !gw::stream_device<enter_is_not_const>);

struct makes_bare_streams : base {
  using base::base;
  stream make_stream() const { return stream(0); }
};
static_assert(!gw::device_makes_streams<makes_bare_streams> && !gw::stream_device<makes_bare_streams>);

struct makes_another_event : base {
  using base::base;
  int make_event() const { return 0; }
};
static_assert(!gw::device_makes_events<makes_another_event> && !gw::stream_device<makes_another_event>);

struct records_the_default_stream : base {
  using base::base;
  void record(event&) const {}
};
static_assert(!gw::device_can_record<records_the_default_stream> && !gw::stream_device<records_the_default_stream>);

struct wait_changes_the_event : base {
  using base::base;
  void wait(stream, event&) const {}
};
static_assert(!gw::device_can_wait<wait_changes_the_event> && !gw::stream_device<wait_changes_the_event>);

struct query_returns_a_code : base {
  using base::base;
  int is_reached(const event&) const { return 0; }
};
static_assert(!gw::device_can_query<query_returns_a_code> && !gw::stream_device<query_returns_a_code>);

struct pinned_memory_leaks : base {
  using base::base;
  std::byte* allocate_pinned(std::size_t) const { return nullptr; }
};
static_assert(!gw::device_has_pinned_memory<pinned_memory_leaks> && !gw::stream_device<pinned_memory_leaks>);

struct copies_at_once : base {
  using base::base;
  void copy_to_host(std::byte*, const std::byte*, std::size_t) const {}
};
static_assert(!gw::device_can_copy<copies_at_once> && !gw::stream_device<copies_at_once>);

struct synchronizes_all : base {
  using base::base;
  void synchronize() const {}
};
static_assert(!gw::device_can_synchronize<synchronizes_all> && !gw::stream_device<synchronizes_all>);

struct kernels_of_other_streams : base {
  using base::base;
  const gt::device_kernels_archetype& kernels() const { return other; }
  gt::device_kernels_archetype other{0};
};
static_assert(!gw::device_has_kernels<kernels_of_other_streams> && !gw::stream_device<kernels_of_other_streams>);

}  // namespace
