#include <gradweave/collective/cost_model.hpp>

#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>

using namespace gradweave;

namespace {

std::string complaint_of(const cost_model& model) {
  try {
    model.check();
  } catch (const contract_violation& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("cost_model: links between and within hosts have costs of their own") {
  const cost_model model{.between = {.alpha_s = 1}, .within = {.alpha_s = 2}};
  CHECK(model.link(true).alpha_s == 1);
  CHECK(model.link(false).alpha_s == 2);
  CHECK(complaint_of(model).empty());
}

TEST_CASE("cost_model: numbers that are no times are told by name") {
  CHECK(complaint_of({.between = {.beta_s_per_byte = -1}}).find("between hosts, beta is -1") != std::string::npos);
  CHECK(complaint_of({.within = {.gamma_s_per_byte = std::numeric_limits<double>::quiet_NaN()}})
            .find("within hosts, gamma is") != std::string::npos);
  CHECK(complaint_of({.between = {.alpha_s = 1, .overhead_s = 2}}).find("more than alpha") != std::string::npos);
  CHECK(complaint_of({.divide_s_per_byte = std::numeric_limits<double>::infinity()}).find("divide") !=
        std::string::npos);
  CHECK(complaint_of({.piece_bytes = 0}).find("piece_bytes") != std::string::npos);
}

TEST_CASE("host_topology: ranks are numbered host by host") {
  const host_topology uneven({3, 1, 2});
  CHECK(uneven.ranks() == 6);
  CHECK(uneven.hosts() == 3);
  CHECK_FALSE(uneven.is_even());
  CHECK(uneven.host_by_rank() == std::vector<int>{0, 0, 0, 1, 2, 2});
  CHECK(uneven.first_rank(2) == 4);
  CHECK(uneven.ranks_of(2) == 2);
  CHECK(uneven.host_of(3) == 1);
  CHECK(uneven.place_of(5) == 1);
  const host_topology even = host_topology::even(4, 2);
  CHECK(even.is_even());
  CHECK(even == host_topology({2, 2, 2, 2}));
}

TEST_CASE("host_topology: refuses to have no hosts, and a host without ranks") {
  CHECK_THROWS_WITH_AS(host_topology({}), doctest::Contains("there are no hosts"), contract_violation);
  CHECK_THROWS_WITH_AS(host_topology({2, 0}), doctest::Contains("host 1 has 0 ranks"), contract_violation);
}
