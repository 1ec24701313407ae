#include <gradweave/synchronizer/bucket_line.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/compression/none.hpp>

using namespace gradweave;
using namespace gradweave::detail;

namespace {

/// Gets on until the line waits for the caller.
template <class Line>
lane_status run(Line& line, backend::loopback& backend, const step_record* own) {
  lane_status status = line.advance(own);
  for (; status == lane_status::pending; status = line.advance(own)) {
    backend.wait();
  }
  return status;
}

}  // namespace

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
    gradients.begin_step();
    line.begin_step(1);
    CHECK(run(line, backend, nullptr) == lane_status::idle);
    gradients.mark_used({1}, true);
    CHECK(line.count_down({1}));
    CHECK(run(line, backend, nullptr) == lane_status::idle);
    CHECK(line.in_context({}).bucket == 0);
    CHECK(line.in_context({}).slots == std::vector<std::string>{"first"});
    gradients.mark_used({0}, true);
    CHECK(line.count_down({0}));
    CHECK(run(line, backend, nullptr) == lane_status::idle);
    CHECK(first[2] == 0.5F);
    CHECK(second[1] == 4);
    const step_record own{.unused_digest = static_cast<std::uint64_t>(backend.rank())};
    CHECK(run(line, backend, &own) == lane_status::finished);
    CHECK(line.outcome().slots_differ);
    CHECK(line.records()[1].unused_digest == 1);
  });
}

TEST_CASE("bucket_line: a slot in slices is overtaken between them; it is an average, and told of, with the last") {
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> needed(3), large(2 * slice_granule_elements), late(1);
    manifest registered;
    registered.add("needed", needed);
    registered.add("large", large);
    registered.add("late", late);
    gradient_table gradients(std::move(registered));
    std::vector<std::byte> arena(4 * large.size() + 256);
    gradients.place(lay_out_arena(gradients.entries()), arena.data());
    step_meter meter(2);
    bucket_line<decltype(backend), compression::none> line(backend, gradients, meter, averager({}, 2));
    std::vector<std::uint32_t> told;
    line.on_reduced([&](std::span<const slot> slots) {
      for (const slot each : slots) {
        told.push_back(each.index);
      }
    });
    line.adopt({{{slot{1}}, {slot{0}}, {slot{2}, slot{1}}}}, compression::none{});
    const auto ready = [&](slot which) {
      gradients.mark_used(which, true);
      line.count_down(which);
    };
    for (int step = 0; step < 2; ++step) {
      told.clear();
      needed.assign(needed.size(), static_cast<float>(backend.rank()));
      large.assign(large.size(), static_cast<float>(2 * backend.rank()));
      gradients.begin_step();
      line.begin_step(1);
      ready({1});
      CHECK(run(line, backend, nullptr) == lane_status::idle);
      CHECK(large[slice_granule_elements - 1] == 1);
      CHECK(large[slice_granule_elements] == static_cast<float>(2 * backend.rank()));
      CHECK(told.empty());
      ready({0});
      CHECK(run(line, backend, nullptr) == lane_status::idle);
      line.wait_for({0});
      CHECK(needed[2] == 0.5F);
      CHECK(told == std::vector<std::uint32_t>{0});
      CHECK(line.in_context({}).slots == std::vector<std::string>{"late", "large"});
      ready({2});
      CHECK(run(line, backend, nullptr) == lane_status::idle);
      line.wait_for({1});
      CHECK(large.back() == 1);
      CHECK(told == std::vector<std::uint32_t>{0, 2, 1});
      const step_record own{};
      CHECK(run(line, backend, &own) == lane_status::finished);
    }
  });
}
