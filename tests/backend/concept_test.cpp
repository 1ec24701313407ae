#include <gradweave/backend/concept.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

// What travels on the wire never changes.
static_assert(static_cast<int>(gw::collective::all_reduce) == 1 && static_cast<int>(gw::collective::barrier) == 6);

static_assert(gw::explain_backend<gt::backend_archetype>() && gw::explain_backend<gt::host_backend_archetype>());

namespace {

using base = gt::host_backend_archetype;

// Near misses: each breaks one thing, and only the atom for that thing notices.

struct rank_is_unsigned : base {
  unsigned rank() const { return 0; }
};
static_assert(!gw::backend_has_rank<rank_is_unsigned> && !gw::backend_policy<rank_is_unsigned>);

struct size_is_not_const : base {
  int size() { return 1; }
};
static_assert(!gw::backend_has_rank<size_is_not_const> && !gw::backend_policy<size_is_not_const>);

struct space_is_a_number : base {
  static constexpr int space = 1;
};
static_assert(!gw::backend_has_space<space_is_a_number> && !gw::backend_policy<space_is_a_number>);

struct execution_is_a_flag : base {
  static constexpr bool execution = true;
};
static_assert(!gw::backend_has_execution<execution_is_a_flag> && !gw::backend_policy<execution_is_a_flag>);

struct capabilities_is_one_collective : base {
  static constexpr gw::collective capabilities = gw::collective::all_reduce;
};
static_assert(!gw::backend_has_capabilities<capabilities_is_one_collective>);
static_assert(!gw::backend_policy<capabilities_is_one_collective>);

struct capabilities_is_a_member : base {
  gw::collective_set capabilities = {};
};
static_assert(!gw::backend_has_capabilities<capabilities_is_a_member> && !gw::can_broadcast<capabilities_is_a_member>);
static_assert(!gw::backend_policy<capabilities_is_a_member>);

struct execution_is_a_member : base {
  gw::execution_model execution = gw::execution_model::host;
};
static_assert(!gw::backend_has_execution<execution_is_a_member> && !gw::host_backend<execution_is_a_member>);

struct space_is_a_member : base {
  gw::memory_space space = gw::memory_space::host;
};
static_assert(!gw::backend_has_space<space_is_a_member> && !gw::backend_policy<space_is_a_member>);

struct arena_is_of_char : base {
  struct arena {
    char* data();
  };
  arena allocate_arena(std::size_t) { return {}; }
};
static_assert(!gw::backend_has_arena<arena_is_of_char> && !gw::backend_policy<arena_is_of_char>);

struct arena_is_fixed : base {
  struct arena {
    arena() = default;
    arena(const arena&) = delete;
    arena& operator=(const arena&) = delete;
    std::byte* data() { return nullptr; }
  };
  arena allocate_arena(std::size_t) { return {}; }
};
static_assert(!gw::backend_has_arena<arena_is_fixed> && !gw::backend_policy<arena_is_fixed>);

struct abort_returns_nothing : base {
  void abort(gw::failure) {}
};
static_assert(!gw::backend_can_abort<abort_returns_nothing> && !gw::backend_policy<abort_returns_nothing>);

struct bytes_are_of_32_bits : base {
  std::uint32_t payload_bytes_sent() const { return 0; }
};
static_assert(!gw::backend_counts_bytes<bytes_are_of_32_bits> && !gw::backend_policy<bytes_are_of_32_bits>);

struct describe_is_not_const : base {
  void describe(gw::description&) {}
};
static_assert(!gw::describes_itself<describe_is_not_const> && !gw::backend_policy<describe_is_not_const>);

struct stays : base {
  stays() = default;
  stays(stays&&) = delete;
};
static_assert(!gw::backend_policy<stays>);

struct start_is_private : base {
 private:
  void start(const gw::collective_request&) {}
};
static_assert(!gw::backend_can_start<start_is_private> && !gw::host_backend<start_is_private>);
static_assert(gw::backend_policy<start_is_private>);

struct poll_returns_nothing : base {
  void poll() {}
};
static_assert(!gw::backend_can_poll<poll_returns_nothing> && !gw::host_backend<poll_returns_nothing>);
static_assert(gw::backend_policy<poll_returns_nothing>);

struct wait_wants_a_deadline : base {
  void wait(int) {}
};
static_assert(!gw::backend_can_wait<wait_wants_a_deadline> && !gw::host_backend<wait_wants_a_deadline>);
static_assert(gw::backend_policy<wait_wants_a_deadline>);

struct is_stream_ordered : base {
  static constexpr gw::execution_model execution = gw::execution_model::stream;
};
static_assert(gw::backend_policy<is_stream_ordered> && !gw::host_backend<is_stream_ordered>);

// Capabilities are concepts of their own.
static_assert(gw::can_all_gather<base> && gw::can_broadcast<base>);
static_assert(!gw::can_all_reduce<base> && !gw::can_reduce_scatter<base> && !gw::can_all_to_all<base>);
static_assert(!gw::can_barrier<base> && !gw::can_split<base> && !gw::can_all_reduce<int>);

struct splits : base {
  std::optional<splits> split(int, int) { return {}; }
};
static_assert(gw::can_split<splits> && gw::explain_splitting_backend<splits>());

struct splits_for_all : base {
  splits_for_all split(int, int) { return {}; }
};
static_assert(!gw::can_split<splits_for_all>);  // a rank may be in no group

/// Complete at the third poll.
struct slow : base {
  int polls = 0;
  int waits = 0;
  void start(const gw::collective_request&) { polls = 0; }
  bool poll() { return ++polls == 3; }
  void wait() { ++waits; }
};

}  // namespace

TEST_CASE("collective_set: holds what it was made of") {
  constexpr gw::collective_set some = {gw::collective::all_reduce, gw::collective::barrier};
  static_assert(some.contains(gw::collective::all_reduce) && some.contains(gw::collective::barrier));
  static_assert(!some.contains(gw::collective::broadcast));
  static_assert(some.contains(gw::collective_set{}) && some.contains(some));
  static_assert(!some.contains(gw::collective_set{gw::collective::all_reduce, gw::collective::broadcast}));
  CHECK((some | gw::collective_set{gw::collective::broadcast}).contains(gw::collective::broadcast));
}

TEST_CASE("collective: each has its usual name") {
  CHECK(gw::to_string(gw::collective::all_reduce) == "all_reduce");
  CHECK(gw::to_string(gw::collective::reduce_scatter) == "reduce_scatter");
  CHECK(gw::to_string(gw::collective::all_gather) == "all_gather");
  CHECK(gw::to_string(gw::collective::all_to_all) == "all_to_all");
  CHECK(gw::to_string(gw::collective::broadcast) == "broadcast");
  CHECK(gw::to_string(gw::collective::barrier) == "barrier");
}

TEST_CASE("run_collective: polls until complete and waits in between") {
  slow backend;
  gw::run_collective(backend, {});
  CHECK(backend.polls == 3);
  CHECK(backend.waits == 2);
}
