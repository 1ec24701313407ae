#include <gradweave/collective/virtual_time.hpp>

#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/assert.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/direct.hpp>
#include <gradweave/collective/halving_doubling.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/recursive_doubling.hpp>
#include <gradweave/collective/ring.hpp>
#include <gradweave/collective/schedule.hpp>
#include <gradweave/collective/shared.hpp>

using namespace gradweave;

namespace {

constexpr double alpha = 25e-6;
constexpr double beta = 8 / 25e9;
constexpr double gamma_s = 1e-10;
constexpr std::size_t element_bytes = 4;
constexpr operand whole{operand_buffer::data, 0, 100};

/// Times are far below a second, which doctest's tolerance is a part of unless told otherwise.
doctest::Approx near_to(double seconds) { return doctest::Approx(seconds).scale(0).epsilon(1e-9); }

/// The literature's: no openings, and links within a host like those between.
cost_model homogeneous() {
  const link_cost link{.alpha_s = alpha, .beta_s_per_byte = beta, .gamma_s_per_byte = gamma_s};
  return {.between = link, .within = link, .has_openings = false};
}

/// Everything has a cost, and another one.
cost_model uneven_costs() {
  return {.between = {.alpha_s = alpha, .overhead_s = 3e-6, .beta_s_per_byte = beta, .gamma_s_per_byte = 3 * gamma_s},
          .within = {.alpha_s = 1e-6, .overhead_s = 5e-7, .beta_s_per_byte = beta / 7, .gamma_s_per_byte = gamma_s},
          .divide_s_per_byte = gamma_s / 2};
}

auto ring_of(std::size_t elements) {
  return [elements](schedule_world world, schedule& out) {
    std::vector<std::size_t> pieces;
    cut_evenly(elements, world.size, pieces);
    ring_all_reduce(world, pieces, out);
  };
}

auto direct_of(std::size_t elements) {
  return [elements](schedule_world world, schedule& out) {
    std::vector<std::size_t> pieces;
    cut_evenly(elements, world.size, pieces);
    direct_schedules().all_reduce(world, pieces, out);
  };
}

auto doubling_of(std::size_t elements) {
  return [elements](schedule_world world, schedule& out) { recursive_doubling_all_reduce(world, elements, out); };
}

auto halving_of(std::size_t elements) {
  return [elements](schedule_world world, schedule& out) {
    std::vector<std::size_t> pieces;
    cut_evenly(elements, folded_world(world).size(), pieces);
    halving_doubling_all_reduce(world, pieces, out);
  };
}

auto hierarchical_of(const host_topology& topology, std::size_t elements) {
  return [groups = rank_groups(topology.host_by_rank()), elements](schedule_world world, schedule& out) {
    hierarchical_schedules().all_reduce(groups, world.rank, elements, out);
  };
}

template <class Make>
double seconds_of(const cost_model& model, const host_topology& topology, Make&& make) {
  return simulate_all_ranks(model, topology, element_bytes, make).seconds;
}

}  // namespace

TEST_CASE("virtual time: a ring takes 2 (N-1) (alpha + n/N beta) + (N-1) n/N gamma") {
  for (const int size : {2, 3, 4, 7, 64}) {
    const std::size_t elements = 16 * 50 * static_cast<std::size_t>(size);
    const double piece = 16 * 50 * element_bytes;
    const double rounds = size - 1;
    const double expected = 2 * rounds * (alpha + piece * beta) + rounds * piece * gamma_s;
    CAPTURE(size);
    const host_topology topology = host_topology::even(static_cast<std::size_t>(size), 1);
    CHECK(seconds_of(homogeneous(), topology, ring_of(elements)) == near_to(expected));
  }
}

TEST_CASE("virtual time: of what arrives at once the reduction overlaps, but for the last piece") {
  cost_model model = homogeneous();
  const host_topology pair = host_topology::even(2, 1);
  const std::size_t elements = std::size_t{1} << 20;
  const double bytes = static_cast<double>(elements * element_bytes) / 2;
  const double piece = static_cast<double>(model.piece_bytes);
  const double network_bound = 2 * (alpha + bytes * beta) + piece * gamma_s;
  CHECK(seconds_of(model, pair, ring_of(elements)) == near_to(network_bound));
  model.between.gamma_s_per_byte = 10 * beta;
  const double processor_bound = 2 * alpha + bytes * (10 * beta + beta);
  CHECK(seconds_of(model, pair, ring_of(elements)) == near_to(processor_bound));
}

TEST_CASE("virtual time: recursive doubling takes log2 N (alpha + n beta + n gamma)") {
  const double bytes = 1000 * element_bytes;
  const double round = alpha + bytes * (beta + gamma_s);
  for (const int size : {2, 4, 8, 32}) {
    CAPTURE(size);
    CHECK(seconds_of(homogeneous(), host_topology::even(static_cast<std::size_t>(size), 1), doubling_of(1000)) ==
          near_to(round * (std::bit_width(static_cast<unsigned>(size)) - 1)));
  }
}

TEST_CASE("virtual time: folding takes two messages more where folded ranks lie across; one less where none do") {
  const double bytes = 1000 * element_bytes;
  const auto seconds = [&](std::size_t size) {
    return seconds_of(homogeneous(), host_topology::even(size, 1), doubling_of(1000));
  };
  const double round = alpha + bytes * (beta + gamma_s);
  const double folding = round + alpha + bytes * beta;
  // What comes in first keeps what comes at the same moment waiting for its bytes.
  CHECK(seconds(7) >= 2 * round + folding - 1e-12);
  CHECK(seconds(7) <= 2 * round + folding + bytes * beta + 1e-12);
  CHECK(seconds(15) >= 3 * round + folding - 1e-12);
  CHECK(seconds(15) <= 3 * round + folding + bytes * beta + 1e-12);
  // Of 33 ranks one is folded: while its partner waits for it, the others' first messages arrive.
  CHECK(seconds(33) >= 5 * round + folding - alpha - 1e-12);
  CHECK(seconds(33) <= 5 * round + folding - alpha + bytes * beta + 1e-12);
}

TEST_CASE("virtual time: halving and doubling takes 2 log2 N alpha + (N-1)/N n (2 beta + gamma)") {
  for (const int size : {2, 4, 8, 64}) {
    const std::size_t elements = 16 * 20 * static_cast<std::size_t>(size);
    const double rounds = std::bit_width(static_cast<unsigned>(size)) - 1;
    const double travels = static_cast<double>(elements * element_bytes) * (size - 1) / size;
    CAPTURE(size);
    CHECK(seconds_of(homogeneous(), host_topology::even(static_cast<std::size_t>(size), 1), halving_of(elements)) ==
          near_to(2 * rounds * alpha + travels * (2 * beta + gamma_s)));
  }
}

TEST_CASE("virtual time: direct messages overlap their latencies; overhead is paid for each") {
  for (const int size : {2, 5, 16}) {
    const double piece = 160 * element_bytes;
    const double peers = size - 1;
    cost_model model = homogeneous();
    const host_topology topology = host_topology::even(static_cast<std::size_t>(size), 1);
    const auto direct = direct_of(160 * static_cast<std::size_t>(size));
    CAPTURE(size);
    CHECK(seconds_of(model, topology, direct) == near_to(2 * (alpha + peers * piece * beta) + peers * piece * gamma_s));
    // With the whole of alpha as overhead, messages leave one by one, as in the literature.
    model.between.overhead_s = alpha;
    CHECK(seconds_of(model, topology, direct) == near_to(2 * (peers * alpha + piece * beta) + peers * piece * gamma_s));
  }
}

TEST_CASE("virtual time: openings put one alpha and an overhead each before what is sent") {
  cost_model model = homogeneous();
  const host_topology topology = host_topology::even(4, 1);
  const double without = seconds_of(model, topology, ring_of(64));
  model.has_openings = true;
  CHECK(seconds_of(model, topology, ring_of(64)) == near_to(without + alpha));
  model.between.overhead_s = alpha / 5;
  CHECK(seconds_of(model, topology, ring_of(64)) == near_to(without + alpha));
}

TEST_CASE("virtual time: ranks of a host share its link, in each direction, and not what goes within") {
  // Ranks 0 and 1 send to 2 and 3, and these back.
  const auto exchange = [](schedule_world world, schedule& out) {
    out.send((world.rank + 2) % 4, whole);
    out.receive((world.rank + 2) % 4, {operand_buffer::scratch, 0, 100});
  };
  const double bytes = 100 * element_bytes;
  CHECK(seconds_of(homogeneous(), host_topology({2, 2}), exchange) == near_to(alpha + 2 * bytes * beta));
  CHECK(seconds_of(homogeneous(), host_topology({1, 1, 1, 1}), exchange) == near_to(alpha + bytes * beta));
  CHECK(seconds_of(homogeneous(), host_topology({4}), exchange) == near_to(alpha + bytes * beta));
  // Hosts {0, 1}, {2}, {3}: only one direction is shared, of each.
  CHECK(seconds_of(homogeneous(), host_topology({2, 1, 1}), exchange) == near_to(alpha + 2 * bytes * beta));
}

TEST_CASE("virtual time: a host's link is shared by what leaves to different hosts, and by what comes from them") {
  const double bytes = 100 * element_bytes;
  const host_topology topology({2, 1, 1});
  const auto outwards = [](schedule_world world, schedule& out) {
    world.rank < 2 ? out.send(world.rank + 2, whole) : out.receive(world.rank - 2, whole);
  };
  const auto inwards = [](schedule_world world, schedule& out) {
    world.rank < 2 ? out.receive(world.rank + 2, whole) : out.send(world.rank - 2, whole);
  };
  const virtual_run left = simulate_all_ranks(homogeneous(), topology, element_bytes, outwards);
  CHECK(left.finished_s[2] == near_to(alpha + bytes * beta));
  CHECK(left.finished_s[3] == near_to(alpha + 2 * bytes * beta));
  const virtual_run came = simulate_all_ranks(homogeneous(), topology, element_bytes, inwards);
  CHECK(came.finished_s[0] == near_to(alpha + bytes * beta));
  CHECK(came.finished_s[1] == near_to(alpha + 2 * bytes * beta));
  CHECK(came.finished_s[3] == near_to(bytes * beta));  // it is done once all has left
}

TEST_CASE("virtual time: a rank reduces one thing at a time") {
  cost_model model = homogeneous();
  model.within = {.gamma_s_per_byte = 1e-9};  // all arrives at once
  const auto gather = [](schedule_world world, schedule& out) {
    if (world.rank != 0) {
      out.send(0, whole);
      return;
    }
    for (int peer = 1; peer < world.size; ++peer) {
      out.receive_reduce(peer, whole);
    }
  };
  const double bytes = 100 * element_bytes;
  CHECK(seconds_of(model, host_topology({4}), gather) == near_to(bytes * 3e-9));
}

TEST_CASE("virtual time: in shared memory, an alpha to lend, the work, and an alpha to give back") {
  const cost_model model = uneven_costs();
  for (const int size : {2, 3, 8}) {
    const host_topology topology({size});
    const rank_groups groups(topology.host_by_rank());
    const double piece = 48 * element_bytes;
    const auto shared = [&](schedule_world world, schedule& out) {
      std::vector<std::size_t> pieces;
      cut_evenly(48 * static_cast<std::size_t>(world.size), world.size, pieces);
      shared_schedules().all_reduce(groups.members(0), world.rank, pieces, out);
    };
    const double told = (size - 1) * model.within.overhead_s - model.within.overhead_s;
    const double work = piece * (2 * (size - 1) * model.within.gamma_s_per_byte + model.divide_s_per_byte);
    CAPTURE(size);
    CHECK(seconds_of(model, topology, shared) == near_to(told + 2 * model.within.alpha_s + work));
  }
}

TEST_CASE("virtual time: where hosts do the same, one host gives the times of all ranks") {
  for (const cost_model& model : {homogeneous(), uneven_costs()}) {
    for (const auto& pair :
         std::vector<std::pair<int, int>>{{2, 1}, {3, 1}, {64, 1}, {2, 2}, {3, 4}, {8, 8}, {16, 4}, {21, 3}, {2, 32}}) {
      const int hosts = pair.first, ranks = pair.second;
      CAPTURE(hosts);
      CAPTURE(ranks);
      const host_topology topology = host_topology::even(static_cast<std::size_t>(hosts), ranks);
      const std::size_t elements = 16 * 30 * static_cast<std::size_t>(topology.ranks());
      const auto compare = [&](const auto& make) {
        const virtual_run all = simulate_all_ranks(model, topology, element_bytes, make);
        const virtual_run one = simulate_one_host(model, topology, element_bytes, make);
        CHECK(one.steps * static_cast<std::size_t>(hosts) == all.steps);
        CHECK(one.seconds == near_to(all.seconds));
        for (std::size_t rank = 0; rank < all.finished_s.size(); ++rank) {
          CAPTURE(rank);
          CHECK(all.finished_s[rank] == near_to(one.finished_s[rank % static_cast<std::size_t>(ranks)]));
        }
      };
      compare(ring_of(elements));
      compare(direct_of(elements));
      compare(hierarchical_of(topology, elements));
    }
  }
  CHECK_THROWS_WITH_AS(simulate_one_host(homogeneous(), host_topology({1, 2, 1}), element_bytes, ring_of(64)),
                       doctest::Contains("hosts do different things"), contract_violation);
}

TEST_CASE("virtual time: hosts of different sizes; the hierarchical ring goes as seldom between hosts") {
  const host_topology topology({3, 1, 2});
  const cost_model model = uneven_costs();
  const std::size_t elements = std::size_t{1} << 20;
  const double bytes = static_cast<double>(elements * element_bytes);
  // One owner a host: 2 (G-1)/G of the buffer over each host's link.
  const double least = 2.0 * 2 / 3 * bytes * beta;
  const double hierarchical = seconds_of(model, topology, hierarchical_of(topology, elements));
  CHECK(hierarchical > least);
  // The first host has three ranks and takes longest: their sum before, and the writing back of each piece after.
  const double rounds = 4 * (alpha + (bytes / 3 + 64) * beta + 65536 * 3 * gamma_s);
  const double within = 2 * model.within.alpha_s + 2 * bytes * gamma_s * 2 + bytes * gamma_s;
  CHECK(hierarchical < rounds + within + alpha);
  // By direct messages, each host's ranks send to all others over one link.
  CHECK(seconds_of(model, topology, direct_of(elements)) > hierarchical);
}

TEST_CASE("virtual time: what can't finish is told with ranks and steps") {
  const auto deadlocked = [](schedule_world world, schedule& out) {
    const int other = 1 - world.rank;
    const schedule::index received = out.receive(other, {operand_buffer::scratch, 0, 100});
    out.send(other, whole, {received});
  };
  CHECK_THROWS_WITH_AS(
      seconds_of(homogeneous(), host_topology({1, 1}), deadlocked),
      doctest::Contains(
          "the collective can't finish: rank 0 step 0 (receive from rank 1) waits for rank 1 step 1 (send "
          "to rank 0), which waits for step 0 of its own; rank 1 step 0 (receive from rank 0) waits for "
          "rank 0 step 1 (send to rank 1), which waits for step 0 of its own"),
      contract_violation);
  const auto unsent = [](schedule_world world, schedule& out) {
    if (world.rank == 0) {
      out.receive(1, whole);
    }
  };
  CHECK_THROWS_WITH_AS(seconds_of(homogeneous(), host_topology({1, 1}), unsent),
                       doctest::Contains("rank 0 step 0 (receive from rank 1) waits for what rank 1 never does"),
                       contract_violation);
  const auto kept = [](schedule_world world, schedule& out) {
    if (world.rank == 0) {
      out.lend_to_read(1, whole);
    }
  };
  CHECK_THROWS_WITH_AS(seconds_of(homogeneous(), host_topology({2}), kept),
                       doctest::Contains("rank 0 step 0 (lend to rank 1) waits for what rank 1 never does"),
                       contract_violation);
}

TEST_CASE("virtual time: empty messages take none, and one rank has nothing to wait for") {
  CHECK(seconds_of(uneven_costs(), host_topology({1, 1, 1}), doubling_of(0)) == 0);
  CHECK(seconds_of(homogeneous(), host_topology({1}), ring_of(1000)) == 0);
}
