#include <gradweave/backend/scheduled.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>
#include <gradweave/transport/in_process.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/tcp.hpp"

using namespace gradweave;
using namespace std::chrono_literals;

TEST_CASE("scheduled: a timeout that is not positive is refused") {
  auto ends = in_process_transport::connect(1);
  CHECK_THROWS_AS(backend::scheduled("test", std::move(ends[0]), {.timeout = 0ms}), contract_violation);
}

TEST_CASE("scheduled: an algorithm that needs shared memory is refused where ranks share none") {
  const auto make = [](int size, all_reduce_algorithm algorithm) {
    auto ends = in_process_transport::connect(size);
    backend::scheduled("test", std::move(ends[0]), {.algorithm = algorithm});
  };
  make(2, all_reduce_algorithm::shared);
  make(2, all_reduce_algorithm::hierarchical);
  CHECK_THROWS_WITH_AS(schedule_selector(std::nullopt, all_reduce_algorithm::shared),
                       doctest::Contains("algorithm 'shared': not all ranks share memory"), contract_violation);
  CHECK_THROWS_WITH_AS(schedule_selector(std::nullopt, all_reduce_algorithm::hierarchical),
                       doctest::Contains("algorithm 'hierarchical': no ranks share memory"), contract_violation);
}

TEST_CASE("scheduled_options_from: GRADWEAVE_ALGORITHM wins, and a wrong name is refused with those that there are") {
  const auto from = [](const char* value) {
    return backend::scheduled_options_from(
        [&](const std::string& name) {
          return value == nullptr || name != "GRADWEAVE_ALGORITHM" ? std::nullopt : std::optional<std::string>(value);
        },
        {.timeout = 3s, .algorithm = all_reduce_algorithm::direct});
  };
  CHECK(from(nullptr).algorithm == all_reduce_algorithm::direct);
  CHECK(from("halving_doubling").algorithm == all_reduce_algorithm::halving_doubling);
  CHECK(from("ring").timeout == 3s);
  CHECK_THROWS_WITH_AS(
      from("rings"),
      doctest::Contains("the environment variable GRADWEAVE_ALGORITHM is 'rings'; it has to be one of automatic, ring, "
                        "halving_doubling, recursive_doubling, direct, shared, hierarchical"),
      contract_violation);
}

TEST_CASE("scheduled_options_from: GRADWEAVE_PIECE_BYTES wins, and a size out of bounds is refused") {
  const auto from = [](const char* value) {
    return backend::scheduled_options_from([&](const std::string& name) {
      return name == "GRADWEAVE_PIECE_BYTES" ? std::optional<std::string>(value) : std::nullopt;
    });
  };
  CHECK(from("4096").piece_bytes == 4096);
  CHECK_THROWS_WITH_AS(from("12"),
                       doctest::Contains("the environment variable GRADWEAVE_PIECE_BYTES is '12'; it has to be a whole "
                                         "number from 1024 to 67108864"),
                       contract_violation);
  CHECK_THROWS_AS(backend::make_loopback(2, {.piece_bytes = 1}), contract_violation);
}

TEST_CASE("scheduled: sums are the same whatever the size of pieces, also one that cuts elements") {
  for (const std::size_t piece_bytes : {std::size_t{1024}, std::size_t{1027}, std::size_t{1} << 20}) {
    std::vector<std::vector<double>> values(2, std::vector<double>(100'000));
    backend::run_loopback(
        2,
        [&](backend::loopback backend) {
          std::vector<double>& own = values[static_cast<std::size_t>(backend.rank())];
          for (std::size_t i = 0; i < own.size(); ++i) {
            own[i] = static_cast<double>(i) + backend.rank();
          }
          const extent whole{reinterpret_cast<std::byte*>(own.data()), own.size() * sizeof(double), 0};
          run_collective(backend,
                         {.operation = collective::all_reduce, .kind = element_kind::float64, .data = {&whole, 1}});
        },
        {.algorithm = all_reduce_algorithm::ring, .piece_bytes = piece_bytes});
    for (std::size_t i = 0; i < values[0].size(); ++i) {
      REQUIRE(values[0][i] == 2 * static_cast<double>(i) + 1);
      REQUIRE(values[1][i] == values[0][i]);
    }
  }
}

TEST_CASE("scheduled: pieces that do not cover all ranks are refused") {
  auto ends = in_process_transport::connect(2);
  backend::scheduled pair("test", std::move(ends[0]));
  const std::size_t pieces[] = {0, 4};
  for (const collective operation :
       {collective::reduce_scatter, collective::all_gather, collective::all_to_all, collective::gather}) {
    CHECK_THROWS_AS(pair.start({.operation = operation, .pieces = pieces, .source_pieces = pieces}),
                    contract_violation);
  }
}

TEST_CASE("scheduled: one rank alone completes every collective at once") {
  auto ends = in_process_transport::connect(1);
  backend::scheduled alone("test", std::move(ends[0]));
  float values[4] = {1, 2, 3, 4};
  float copies[4] = {};
  const extent whole{reinterpret_cast<std::byte*>(values), sizeof values, 0};
  const extent copied{reinterpret_cast<std::byte*>(copies), sizeof copies, 0};
  const std::size_t pieces[] = {0, 4};
  for (const collective operation :
       {collective::all_reduce, collective::reduce_scatter, collective::all_gather, collective::all_to_all,
        collective::broadcast, collective::barrier, collective::gather}) {
    const bool exchange = operation == collective::all_to_all;
    alone.start({.operation = operation,
                 .kind = element_kind::float32,
                 .data = {exchange ? &copied : &whole, 1},
                 .pieces = pieces,
                 .source = {&whole, 1},
                 .source_pieces = pieces});
    CHECK(alone.poll());
  }
  CHECK(copies[3] == 4);
  CHECK(values[2] == 3);
  CHECK(alone.payload_bytes_sent() == 0);
}

namespace {

/// Ranks of one process that share memory two by two, as if each pair were a host.
class paired_transport : public in_process_transport {
 public:
  explicit paired_transport(in_process_transport end) : in_process_transport(std::move(end)) {}
  int memory_group(int rank) const { return rank / 2; }
};

}  // namespace

TEST_CASE("scheduled: tells who shares memory, and how many collectives there have been") {
  std::vector<backend::loopback> ranks = backend::make_loopback(3);
  description said;
  ranks[1].describe_peers(said);
  REQUIRE(said.entries().size() == 1);
  CHECK(said.entries()[0].value == "0, 1, 2");
  CHECK(ranks[1].collectives_started() == 0);
}

TEST_CASE(
    "scheduled: where only some ranks share memory, collectives go from host to host, and the kit of backends passes") {
  const testing::watchdog guard("scheduled: hierarchical");
  const auto run = [](int size, auto&& body) {
    std::vector<in_process_transport> ends = in_process_transport::connect(size);
    tests::on_threads(size, [&](int rank) {
      body(backend::scheduled("pairs", paired_transport(std::move(ends[static_cast<std::size_t>(rank)]))));
    });
  };
  // Who sums for its host hands sums on within it: up to half of what each rank has to be given.
  const auto report = testing::check_backend(
      run, {.sizes = tests::is_brief() ? std::vector{4} : std::vector{2, 3, 4, 5}, .payload_slack = 0.2});
  for (const std::string& failure : report.failures()) {
    FAIL_CHECK(failure);
  }
  CHECK(report.passed());
}

TEST_CASE("scheduled: between collectives check() tells of an abort, and of a rank that is gone") {
  const gradweave::testing::watchdog guard("check");
  for (const bool says_why : {true, false}) {
    std::vector<gradweave::backend::loopback> ranks = gradweave::backend::make_loopback(2);
    CHECK_NOTHROW(ranks[0].check());
    std::thread other([own = std::move(ranks[1]), says_why]() mutable {
      if (says_why) {
        own.abort({gradweave::errc::aborted, 1, -1, -1, {}, "enough"});
      }
      auto gone = std::move(own);
    });
    std::string told;
    while (told.empty()) {
      try {
        ranks[0].check();
        std::this_thread::yield();
      } catch (const gradweave::sync_error& error) {
        told = ranks[0].abort(error.cause()).detail;
      }
    }
    other.join();
    CHECK(told == (says_why ? "enough" : "rank 1 is gone"));
  }
}
