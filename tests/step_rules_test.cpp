#include <gradweave/step_rules.hpp>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("step_rules: say what is not as usual, so that ranks which choose otherwise are told apart") {
  description usual;
  step_rules{}.describe(usual);
  CHECK(usual.entries().empty());
  description other;
  step_rules{unused::zero_fill, averaging::mean, division::split, use_counts::recorded}.describe(other);
  REQUIRE(other.entries().size() == 3);
  CHECK(other.entries()[1].key == "division");
  CHECK(other.entries()[1].value == "split");
}

TEST_CASE("step_rules: where a mean is divided has no meaning for a sum") {
  CHECK_NOTHROW((step_rules{.divide = division::before}.check()));
  CHECK_NOTHROW((step_rules{.average = averaging::sum}.check()));
  CHECK_THROWS_AS((step_rules{.average = averaging::sum, .divide = division::before}.check()), contract_violation);
  CHECK_THROWS_AS((step_rules{.average = averaging::weighted_mean, .divide = division::split}.check()),
                  contract_violation);
}
