#include <gradweave/step_rules.hpp>

#include <vector>

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

TEST_CASE(
    "step_rules: who is left out of a mean is for a mean that is divided after the sum; samples are for weighted "
    "ones") {
  CHECK_NOTHROW((step_rules{.joined = joined_ranks::left_out}.check()));
  for (const step_rules& rules :
       std::vector<step_rules>{{.average = averaging::sum, .joined = joined_ranks::left_out},
                               {.average = averaging::weighted_mean, .joined = joined_ranks::left_out},
                               {.divide = division::before, .joined = joined_ranks::left_out},
                               {.divide = division::split, .joined = joined_ranks::left_out}}) {
    CHECK_THROWS_AS(rules.check(), contract_violation);
  }
  CHECK_NOTHROW(step_rules{.average = averaging::weighted_mean}.check({.samples = 0}));
  CHECK_THROWS_AS(step_rules{.average = averaging::weighted_mean}.check({.samples = samples_max + 1}),
                  contract_violation);
  CHECK_THROWS_AS(step_rules{}.check({.samples = 2}), contract_violation);
}
