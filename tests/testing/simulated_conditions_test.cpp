#include <gradweave/testing/simulated_conditions.hpp>

#include <doctest/doctest.h>

TEST_CASE("simulated_network_options: without a word there is no fault, and a stall has no end") {
  const gradweave::testing::simulated_network_options options;
  CHECK(options.fault.kind == gradweave::testing::fault_kind::none);
  CHECK(options.fault.lasts == std::chrono::milliseconds::max());
}
