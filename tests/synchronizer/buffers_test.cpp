#include <gradweave/synchronizer/buffers.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/watchdog.hpp>

using namespace gradweave;

TEST_CASE("check_buffers: averages are refused where the backend has no all_reduce") {
  std::vector<float> taken(2), averaged(2);
  manifest gradients;
  gradients.add_buffer("taken", taken);
  CHECK_NOTHROW(detail::check_buffers<testing::host_backend_archetype>(gradients.buffers(), 1));
  gradients.add_buffer("averaged", averaged, buffer_rule::average());
  CHECK_THROWS_WITH_AS(detail::check_buffers<testing::host_backend_archetype>(gradients.buffers(), 1),
                       doctest::Contains("buffer 'averaged' is to be averaged, and the backend has no all_reduce"),
                       contract_violation);
}

// The rules are tested in rules_test.cpp, seeded programs in laws/differential_test.cpp.
TEST_CASE("buffer_exchange: asks records who has data, and sends nothing where nobody has") {
  const testing::watchdog guard("buffer_exchange");
  backend::run_loopback(3, [](backend::loopback backend) {
    const auto rank = static_cast<float>(backend.rank());
    std::vector<float> taken(2, rank);
    std::vector<bfloat16> averaged(3, to_bfloat16(rank));
    manifest gradients;
    gradients.add_buffer("taken", taken);
    gradients.add_buffer("averaged", averaged, buffer_rule::average());
    detail::buffer_exchange exchange(gradients.buffers());
    std::vector<detail::step_record> records(3);
    records[0].has_data = 0;
    exchange.exchange(backend, records);
    CHECK(taken[1] == 1);
    CHECK(to_float32(averaged[2]) == 1.5F);
    const std::uint64_t sent = backend.payload_bytes_sent();
    taken.assign(2, rank);
    records.assign(3, {.has_data = 0});
    exchange.exchange(backend, records);
    CHECK(backend.payload_bytes_sent() == sent);
    CHECK(taken[1] == rank);
  });
}
