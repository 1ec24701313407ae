#include <gradweave/backend/stream_concept.hpp>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_stream_backend<gt::stream_backend_archetype>());

namespace {

using base = gt::stream_backend_archetype;

struct stream_is_fixed : base {
  struct stream {
    stream(const stream&) = delete;
  };
};
static_assert(!gw::backend_has_stream<stream_is_fixed> && !gw::stream_backend<stream_is_fixed>);
static_assert(!gw::backend_has_stream<gt::backend_archetype>);

struct enqueues_on_any : base {
  void enqueue(const gw::collective_request&) {}
};
static_assert(!gw::backend_can_enqueue<enqueues_on_any> && !gw::stream_backend<enqueues_on_any>);

struct check_is_private : base {
 private:
  void check() {}
};
static_assert(!gw::backend_can_check<check_is_private> && !gw::stream_backend<check_is_private>);

struct control_is_a_copy : base {
  gt::host_backend_archetype control() { return {}; }
};
static_assert(!gw::backend_has_control<control_is_a_copy> && !gw::stream_backend<control_is_a_copy>);

struct controls_itself : base {
  base& control() { return *this; }
};
static_assert(!gw::backend_has_control<controls_itself> && !gw::stream_backend<controls_itself>);

struct is_driven_by_the_host : base {
  static constexpr gw::execution_model execution = gw::execution_model::host;
};
static_assert(gw::backend_policy<is_driven_by_the_host> && !gw::stream_backend<is_driven_by_the_host>);

}  // namespace
