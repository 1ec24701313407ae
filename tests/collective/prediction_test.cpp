#include <gradweave/collective/prediction.hpp>

#include <bit>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/collective/algorithm.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/step_prediction.hpp>

#include "tests/support/brief.hpp"

using namespace gradweave;
using enum all_reduce_algorithm;

namespace {

constexpr double alpha = 25e-6;
constexpr double beta = 8 / 25e9;
constexpr double gamma_s = 1e-10;

/// Times are far below a second, which doctest's tolerance is a part of unless told otherwise.
doctest::Approx near_to(double seconds) { return doctest::Approx(seconds).scale(0).epsilon(1e-9); }

cost_model homogeneous() {
  const link_cost link{.alpha_s = alpha, .beta_s_per_byte = beta, .gamma_s_per_byte = gamma_s};
  return {.between = link, .within = link, .has_openings = false};
}

}  // namespace

TEST_CASE("predict_all_reduce: takes the algorithm that a job of the same size would") {
  const host_topology four = host_topology::even(4, 1);
  CHECK(predict_all_reduce(homogeneous(), four, {.elements = 1}).algorithm == recursive_doubling);
  CHECK(predict_all_reduce(homogeneous(), four, {.elements = 50'000}).algorithm == halving_doubling);
  CHECK(predict_all_reduce(homogeneous(), four, {.elements = 1'000'000}).algorithm == ring);
  CHECK(predict_all_reduce(homogeneous(), host_topology({3}), {.elements = 10}).algorithm == shared);
  CHECK(predict_all_reduce(homogeneous(), host_topology({2, 1}), {.elements = 10}).algorithm == hierarchical);
  CHECK(predict_all_reduce(homogeneous(), four, {.elements = 1, .algorithm = direct}).algorithm == direct);
}

TEST_CASE("predict_all_reduce: small worlds are simulated with the exact count, large ones with equal pieces") {
  const auto small =
      predict_all_reduce(homogeneous(), host_topology::even(5, 1), {.elements = 1001, .algorithm = ring});
  CHECK_FALSE(small.by_symmetry);
  CHECK(small.elements == 1001);
  // A piece of 208 elements goes round whole, and the last is short.
  CHECK(small.seconds <= 8 * (alpha + 832 * beta) + 4 * 832 * gamma_s + 1e-12);
  const auto large =
      predict_all_reduce(homogeneous(), host_topology::even(300, 1), {.elements = 1001, .algorithm = ring});
  CHECK(large.by_symmetry);
  CHECK(large.elements == 16 * 300);
  CHECK(large.seconds == near_to(2 * 299 * (alpha + 64 * beta) + 299 * 64 * gamma_s));
}

TEST_CASE("predict_all_reduce: what does not suit or is too large says so") {
  CHECK_THROWS_WITH_AS(predict_all_reduce(homogeneous(), host_topology({1, 1}), {.elements = 10, .algorithm = shared}),
                       doctest::Contains("not all ranks share memory"), contract_violation);
  std::vector<int> uneven(2000, 1);
  uneven.back() = 2;
  CHECK_THROWS_WITH_AS(
      predict_all_reduce(homogeneous(), host_topology(uneven), {.elements = 100'000, .algorithm = ring}),
      doctest::Contains("ring on 2001 ranks has"), contract_violation);
}

TEST_CASE("predict_all_reduce: from a cluster's costs to a step's time") {
  // [predict]
  const cost_model cluster{.between = {.alpha_s = 25e-6, .overhead_s = 5e-6, .beta_s_per_byte = 8 / 25e9},
                           .within = {.alpha_s = 1e-6, .beta_s_per_byte = 1e-10, .gamma_s_per_byte = 1e-10}};
  const host_topology hosts = host_topology::even(16, 8);  // 16 hosts with 8 ranks each
  const auto seconds_of = [&](std::size_t bytes) {
    return predict_all_reduce(cluster, hosts, {.elements = bytes / sizeof(float)}).seconds;
  };
  const double backward_s = 0.1;
  const auto buckets = even_buckets(100 << 20, 25 << 20, backward_s);  // 100 MiB of gradients, 25 MiB a bucket
  const step_prediction step = predict_step(buckets, backward_s, seconds_of);
  // [/predict]
  CHECK(step.communication_s == near_to(4 * seconds_of(25 << 20)));
  CHECK(step.step_s >= backward_s + seconds_of(25 << 20) - 1e-12);
  CHECK(step.hidden_share() > 0.5);
  CHECK(step.hidden_share() < 1);
}

TEST_CASE("predict_all_reduce: 10,000 ranks") {
  const std::size_t hosts = 10'000;
  const host_topology apart = host_topology::even(hosts, 1);
  const std::size_t elements = 16 * hosts * 10;
  const double bytes = 4.0 * static_cast<double>(elements);
  const double others = static_cast<double>(hosts) - 1;
  const double piece = bytes / static_cast<double>(hosts);
  const auto seconds = [&](all_reduce_algorithm which) {
    const auto found = predict_all_reduce(homogeneous(), apart, {.elements = elements, .algorithm = which});
    CHECK(found.by_symmetry == (which == ring || which == direct));
    return found.seconds;
  };
  CHECK(seconds(ring) == near_to(2 * others * (alpha + piece * beta) + others * piece * gamma_s));
  if (tests::is_brief()) {
    return;  // a million steps and more, of all ranks
  }
  CHECK(seconds(direct) == near_to(2 * (alpha + others * piece * beta) + others * piece * gamma_s));
  const double rounds = std::bit_width(hosts) - 1;
  // The 1,808 ranks that others are folded into differ in 11 of the 13 bits at most: two of their rounds need no waiting.
  const double waits = 1 + 11 + 1;
  const double overlap = 65536 * gamma_s;  // folding receives the whole buffer piece by piece
  CHECK(seconds(recursive_doubling) ==
        near_to(waits * alpha + 2 * bytes * beta + overlap + rounds * bytes * (beta + gamma_s)));
  CHECK(seconds(halving_doubling) > 2 * (rounds + 1) * alpha + (2 + 2 * 8191.0 / 8192) * bytes * beta);
  const auto grouped = predict_all_reduce(homogeneous(), host_topology::even(1250, 8),
                                          {.elements = elements, .algorithm = hierarchical});
  CHECK(grouped.by_symmetry);
  // A host's eight rings share its link, but not in step: they need not wait for each other in every round.
  CHECK(grouped.seconds > 2 * 1249 * (alpha + piece * beta));
  CHECK(grouped.seconds < 2 * 1249 * (alpha + 8 * piece * beta + 8 * piece * gamma_s) + 1e-3);
}
