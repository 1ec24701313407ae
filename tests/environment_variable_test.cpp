#include <gradweave/environment_variable.hpp>

#include <string>

#include <doctest/doctest.h>

#include "tests/support/environment.hpp"

using namespace gradweave;

TEST_CASE("environment_variable: holds what is set, and nothing otherwise") {
  const tests::scoped_variable set("GRADWEAVE_TEST_VARIABLE", "12 ");
  CHECK(environment_variable("GRADWEAVE_TEST_VARIABLE") == "12 ");
  CHECK_FALSE(environment_variable("GRADWEAVE_TEST_NO_VARIABLE"));
}

TEST_CASE("number_in: takes whole numbers within bounds, and quotes anything else") {
  CHECK(detail::number_in("N", "12", 1, 12) == 12);
  CHECK(detail::number_in("N", "-3", -3, 12) == -3);
  for (const char* wrong : {"", "13", "0", "1x", "x", "1.5", "99999999999999999999"}) {
    CAPTURE(wrong);
    const std::string said =
        "the environment variable N is '" + std::string(wrong) + "'; it has to be a whole number from 1 to 12";
    CHECK_THROWS_WITH_AS(detail::number_in("N", wrong, 1, 12), doctest::Contains(said.c_str()), contract_violation);
  }
}
