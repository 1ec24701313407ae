#include <gradweave/synchronizer/rank_table.hpp>

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>

using namespace gradweave;

TEST_CASE("rank_table: one all-gather brings each rank's value to all") {
  backend::run_loopback(3, [](backend::loopback backend) {
    detail::rank_table<std::uint64_t> table(backend.rank(), backend.size());
    const collective_request request = table.request(10 + static_cast<std::uint64_t>(backend.rank()));
    CHECK(request.operation == collective::all_gather);
    CHECK(total_bytes(request.data) == 24);
    run_collective(backend, request);
    CHECK(std::vector(table.values().begin(), table.values().end()) == std::vector<std::uint64_t>{10, 11, 12});
  });
}
