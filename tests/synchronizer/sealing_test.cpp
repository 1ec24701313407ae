#include <gradweave/synchronizer/sealing.hpp>

#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>

using namespace gradweave;

TEST_CASE("sealing: gradients get places, parameters those values, and ranks that chose otherwise are told") {
  backend::run_loopback(2, [](backend::loopback backend) {
    std::vector<float> value(3, static_cast<float>(backend.rank())), gradient(3);
    manifest registered;
    registered.add("g", value, gradient);
    detail::gradient_table gradients(std::move(registered));
    const step_rules rules{.values = {.broadcast_from = 1}};
    description chosen;
    rules.describe(chosen);
    const auto arena = detail::place_gradients(backend, gradients, rules, chosen);
    CHECK(gradients.memory({0}) == arena.data());
    detail::begin_parameters(backend, gradients, rules);
    CHECK(value[2] == 1);
    chosen.add("of its own", backend.rank());
    CHECK_THROWS_AS(static_cast<void>(detail::place_gradients(backend, gradients, rules, chosen)), sync_error);
  });
}
