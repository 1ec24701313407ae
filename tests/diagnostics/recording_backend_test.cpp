#include <gradweave/diagnostics/recording_backend.hpp>

#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/testing/archetypes.hpp>

using namespace gradweave;

static_assert(host_backend<recording_backend<backend::loopback>>);
static_assert(host_backend<recording_backend<testing::host_backend_archetype>>);

TEST_CASE(
    "recording_backend: records what is entered and left, by the numbers that messages have, or records nothing") {
  backend::run_loopback(2, [](backend::loopback backend) {
    float value = 1;
    const extent whole{reinterpret_cast<std::byte*>(&value), sizeof value, 0};
    const collective_request request{
        .operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}};
    const int rank = backend.rank();
    run_collective(backend, request);
    recording_backend<backend::loopback> recorded(std::move(backend),
                                                  {.debug = debug_level::detail, .dump_prefix = "/nowhere/at all"});
    REQUIRE(recorded.records() != nullptr);
    recorded.records()->place(7, 3);
    run_collective(recorded, request);
    CHECK(value == 4);
    if (rank == 0) {
      recorded.start({.operation = collective::barrier});
    }
    const rank_dump dump = recorded.records()->contents("asked");
    REQUIRE(dump.events.size() == (rank == 0 ? 2 : 1));
    CHECK(to_string(dump.events[0]) == "all_reduce of 1 float32 elements (collective 2, step 7, bucket 3)");
    CHECK(dump.events[0].end_ns >= dump.events[0].begin_ns);
    if (rank == 0) {
      CHECK(dump.events[1].end_ns == 0);
      while (!recorded.poll()) {
        recorded.wait();
      }
      CHECK(recorded.records()->contents("asked").events[1].end_ns != 0);
    } else {
      run_collective(recorded, {.operation = collective::barrier});
    }
  });
  backend::run_loopback(1, [](backend::loopback backend) {
    CHECK(recording_backend<backend::loopback>(std::move(backend)).records() == nullptr);
  });
}
