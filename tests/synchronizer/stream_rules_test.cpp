#include <gradweave/synchronizer/stream_rules.hpp>

#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace gradweave;

TEST_CASE("check_stream_rules: each rule that needs the host in a step is refused with its name") {
  CHECK_NOTHROW(detail::check_stream_rules({.average = averaging::sum}, {}));
  const auto sentence = [](const step_rules& rules, bool has_buffer = false) -> std::string {
    const std::vector<manifest_buffer> buffers(has_buffer ? 1 : 0);
    try {
      detail::check_stream_rules(rules, buffers);
    } catch (const contract_violation& refused) {
      return refused.what();
    }
    return {};
  };
  CHECK(sentence({.unused_gradients = unused::zero_fill}).find("zero_fill") != std::string::npos);
  CHECK(sentence({.average = averaging::weighted_mean}).find("weighted_mean") != std::string::npos);
  CHECK(sentence({.joined = joined_ranks::left_out}).find("left_out") != std::string::npos);
  CHECK(sentence({.divide = division::split}).find("division::split") != std::string::npos);
  CHECK(sentence({.uses = use_counts::recorded}).find("recorded") != std::string::npos);
  CHECK(sentence({.values = {.compare_every = 1}}).find("compare_every") != std::string::npos);
  CHECK(sentence({}, true).find("add_buffer") != std::string::npos);
}
