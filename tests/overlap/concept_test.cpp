#include <gradweave/overlap/concept.hpp>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_overlap<gt::overlap_archetype>());

namespace {

// ---- lane_work ------------------------------------------------------------------------------------------------------

using work_base = gw::lane_work_archetype;

struct advance_throws : work_base {
  gw::lane_status advance() { return gw::lane_status::finished; }
};
static_assert(!gw::lane_work<advance_throws>);

struct advance_returns_a_flag : work_base {
  bool advance() noexcept { return true; }
};
static_assert(!gw::lane_work<advance_returns_a_flag>);

struct wait_throws : work_base {
  void wait() {}
};
static_assert(!gw::lane_work<wait_throws>);

struct finished_throws : work_base {
  bool finished() { return true; }
};
static_assert(!gw::lane_work<finished_throws>);

// ---- lane -----------------------------------------------------------------------------------------------------------

using lane_base = gt::lane_archetype<gw::lane_work_archetype>;

struct notify_throws : lane_base {
  using lane_base::lane_base;
  void notify() {}
};
static_assert(!gw::lane_can_notify<notify_throws> && !gw::lane<notify_throws>);

struct drain_wants_a_deadline : lane_base {
  using lane_base::lane_base;
  void drain(int) {}
};
static_assert(!gw::lane_can_drain<drain_wants_a_deadline> && !gw::lane<drain_wants_a_deadline>);

// ---- overlap policy -------------------------------------------------------------------------------------------------

using base = gt::overlap_archetype;

struct is_fixed : base {
  using base::base;
  is_fixed(const is_fixed&) = delete;
};
static_assert(!gw::policy_value<is_fixed> && !gw::overlap_policy<is_fixed>);

struct does_not_compare : base {
  using base::base;
  friend bool operator==(const does_not_compare&, const does_not_compare&) = delete;
};
static_assert(!gw::policy_value<does_not_compare> && !gw::overlap_policy<does_not_compare>);

struct does_not_describe : base {
  using base::base;
  void describe() const {}
};
static_assert(!gw::describes_itself<does_not_describe> && !gw::overlap_policy<does_not_describe>);

struct makes_no_lane : base {
  using base::base;
  template <gw::lane_work Work>
  int make_lane(Work&) const {
    return 0;
  }
};
static_assert(!gw::overlap_makes_lane<makes_no_lane> && !gw::overlap_policy<makes_no_lane>);

struct make_lane_is_not_const : base {
  using base::base;
  template <gw::lane_work Work>
  gt::lane_archetype<Work> make_lane(Work& work) {
    return gt::lane_archetype<Work>(work);
  }
};
static_assert(!gw::overlap_makes_lane<make_lane_is_not_const> && !gw::overlap_policy<make_lane_is_not_const>);

struct makes_a_throwing_lane : base {
  using base::base;
  template <gw::lane_work Work>
  notify_throws make_lane(Work& work) const {
    return notify_throws(work);
  }
};
static_assert(!gw::overlap_makes_lane<makes_a_throwing_lane> && !gw::overlap_policy<makes_a_throwing_lane>);

}  // namespace

TEST_CASE("lane_work_archetype: is finished") {
  gw::lane_work_archetype work;
  CHECK(work.advance() == gw::lane_status::finished);
  CHECK(work.finished());
}
