#include <gradweave/transport/concept.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <doctest/doctest.h>

#include <gradweave/error.hpp>
#include <gradweave/testing/archetypes.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

static_assert(gw::explain_transport<gt::transport_archetype>());

namespace {

using base = gt::transport_archetype;

struct rank_is_unsigned : base {
  unsigned rank() const { return 0; }
};
static_assert(!gw::transport_has_rank<rank_is_unsigned> && !gw::byte_transport<rank_is_unsigned>);

struct sends_all_or_nothing : base {
  bool try_send(int, std::span<const std::byte>) { return false; }
};
static_assert(!gw::transport_can_send<sends_all_or_nothing> && !gw::byte_transport<sends_all_or_nothing>);

struct sends_mutable_bytes : base {
  std::size_t try_send(int, std::span<std::byte>) { return 0; }
};
static_assert(!gw::transport_can_send<sends_mutable_bytes> && !gw::byte_transport<sends_mutable_bytes>);

struct receives_signed : base {
  std::ptrdiff_t try_receive(int, std::span<std::byte>) { return 0; }
};
static_assert(!gw::transport_can_receive<receives_signed> && !gw::byte_transport<receives_signed>);

struct sends_no_control : base {
 private:
  bool try_send_control(int, const gw::control_message&) { return false; }
};
static_assert(!gw::transport_has_control<sends_no_control> && !gw::byte_transport<sends_no_control>);

struct receives_control_by_value : base {
  gw::control_message try_receive_control(int) { return {}; }
};
static_assert(!gw::transport_has_control<receives_control_by_value>);
static_assert(!gw::byte_transport<receives_control_by_value>);

struct close_is_of_everyone : base {
  bool peer_closed() { return true; }
};
static_assert(!gw::transport_sees_close<close_is_of_everyone> && !gw::byte_transport<close_is_of_everyone>);

struct abort_returns_nothing : base {
  void abort(gw::failure) {}
};
static_assert(!gw::transport_can_abort<abort_returns_nothing> && !gw::byte_transport<abort_returns_nothing>);

struct aborted_is_a_flag : base {
  bool aborted() { return false; }
};
static_assert(!gw::transport_can_abort<aborted_is_a_flag> && !gw::byte_transport<aborted_is_a_flag>);

struct events_are_of_32_bits : base {
  std::uint32_t events() { return 0; }
};
static_assert(!gw::transport_can_wait<events_are_of_32_bits> && !gw::byte_transport<events_are_of_32_bits>);

struct wait_has_no_deadline : base {
  void wait(std::uint64_t) {}
};
static_assert(!gw::transport_can_wait<wait_has_no_deadline> && !gw::byte_transport<wait_has_no_deadline>);

struct clock_is_the_systems : base {
  std::chrono::system_clock::time_point now() const { return {}; }
};
static_assert(!gw::transport_has_clock<clock_is_the_systems> && !gw::byte_transport<clock_is_the_systems>);

struct bytes_are_not_const : base {
  std::uint64_t payload_bytes_sent() { return 0; }
};
static_assert(!gw::transport_counts_bytes<bytes_are_not_const> && !gw::byte_transport<bytes_are_not_const>);

struct stays : base {
  stays() = default;
  stays(stays&&) = delete;
};
static_assert(!gw::byte_transport<stays>);

// Optional.
struct makes_groups : base {
  std::optional<makes_groups> subgroup(std::span<const int>, gw::gather_archetype&) { return {}; }
  void tell(gw::failure) {}
};
static_assert(gw::transport_makes_groups<makes_groups> && !gw::transport_makes_groups<base>);

struct is_always_in_a_group : makes_groups {
  is_always_in_a_group subgroup(std::span<const int>, gw::gather_archetype&) { return {}; }
};
static_assert(!gw::transport_makes_groups<is_always_in_a_group>);

}  // namespace

TEST_CASE("control_message: is a cache line") { CHECK(sizeof(gw::control_message) == 64); }
