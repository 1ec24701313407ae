#include <gradweave/diagnostics/options.hpp>

#include <map>
#include <optional>
#include <string>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("diagnostics_options: come from the environment, and are off without it") {
  std::map<std::string, std::string> set;
  const auto look = [&](const char* name) {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  };
  CHECK(diagnostics_options_from(look) == diagnostics_options{});
  set = {{"GRADWEAVE_DEBUG", "detail"}, {"GRADWEAVE_DEBUG_DUMP", "/tmp/at"}, {"GRADWEAVE_TRACE", "trace"}};
  CHECK(diagnostics_options_from(look) == diagnostics_options{debug_level::detail, "/tmp/at", "trace"});
  set = {{"GRADWEAVE_DEBUG", "Info"}};
  CHECK_THROWS_WITH_AS(diagnostics_options_from(look), doctest::Contains("it has to be off, info or detail"),
                       contract_violation);
  set = {{"GRADWEAVE_SECRET", "hush"}, {"RANK", "3"}, {"HOME", "/root"}};
  const description said = honoured_variables(look);
  REQUIRE(said.entries().size() == 2);
  CHECK(said.entries()[0].value == "3");
  CHECK(said.entries()[1].value == "(set)");
}
