#include <gradweave/synchronizer/bucket_line.hpp>

#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/compression/none.hpp>

using namespace gradweave;
using namespace gradweave::detail;

TEST_CASE("bucket_line: buckets go in their order, whichever is complete first, and the record goes last") {
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> first(3, static_cast<float>(backend.rank())), second(2, 4);
    manifest registered;
    registered.add("first", first);
    registered.add("second", second);
    gradient_table gradients(std::move(registered));
    std::vector<std::byte> arena(256);
    gradients.place(lay_out_arena(gradients.entries()), arena.data());
    step_meter meter(2);
    bucket_line<decltype(backend), compression::none> line(backend, gradients, meter, averager({}, 2));
    line.adopt({{{slot{0}}, {slot{1}}}}, compression::none{});
    const auto run = [&](const step_record* own) {
      lane_status status = line.advance(own);
      for (; status == lane_status::pending; status = line.advance(own)) {
        backend.wait();
      }
      return status;
    };
    gradients.begin_step();
    line.begin_step(1);
    CHECK(run(nullptr) == lane_status::idle);
    gradients.mark_used({1}, true);
    CHECK(line.count_down({1}));
    CHECK(run(nullptr) == lane_status::idle);
    CHECK(line.in_context({}).bucket == 0);
    CHECK(line.in_context({}).slots == std::vector<std::string>{"first"});
    gradients.mark_used({0}, true);
    CHECK(line.count_down({0}));
    CHECK(run(nullptr) == lane_status::idle);
    CHECK(first[2] == 0.5F);
    CHECK(second[1] == 4);
    const step_record own{.unused_digest = static_cast<std::uint64_t>(backend.rank())};
    CHECK(run(&own) == lane_status::finished);
    CHECK(line.outcome().slots_differ);
    CHECK(line.records()[1].unused_digest == 1);
  });
}
