// Run by mpi_test.sh, under mpirun: each rank is a process that goes through all of this.
#include <gradweave/backend/mpi.hpp>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/gradweave.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/split_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

#include "tests/support/grid.hpp"
#include "tests/support/mpi.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t steps = 4;

/// All of a step's gradients as they have to be, within the compressor's bound.
bool are_averages(const trial_model& model, const policy_choice& choice, std::uint64_t seed, std::uint64_t step,
                  int size) {
  bool right = true;
  for (std::size_t which = 0; which < model.size(); ++which) {
    const any_tensor& tensor = model.tensor(which);
    for (std::size_t i = 0; i < tensor.elements; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (int r = 0; r < size; ++r) {
        const double value = stored(tensor.kind, trial_model::gradient_of(seed, r, step, which, i));
        sum += value;
        magnitude += std::abs(value);
      }
      const double allowed = size == 1 ? 0 : average_bound(choice, tensor.kind, size, magnitude / size);
      right = right && std::abs(tensor.get(i) - sum / size) <= allowed;
    }
  }
  return right;
}

/// A synchronized training; what the gradients were at the end.
template <class Backend>
std::vector<std::byte> train(Backend backend, const policy_choice& choice, std::uint64_t seed) {
  const int rank = backend.rank();
  const int size = backend.size();
  const auto slots = random_slots(seed, 3 + seed % 20);
  trial_model model(slots);
  auto sync = synchronize_trial(model, std::move(backend), choice);
  for (std::uint64_t s = 0; s < steps; ++s) {
    sync.step([&](auto& step) {
      for (const std::uint32_t which : shuffled_slots(slots.size(), seed, rank, s)) {
        model.fill(seed, rank, s, which);
        step.ready({which});
      }
    });
    CHECK_MESSAGE(are_averages(model, choice, seed, s, size), choice.name << ", seed " << seed << ", step " << s);
  }
  return model.bytes();
}

enum class fault { throws, abandons, forgets, leaves };

/// A training in which `culprit` does something wrong in step 2. What it or the others were told.
testing::detail::collective_outcome train_badly(backend::mpi::backend_type backend, const policy_choice& choice,
                                                int culprit, fault what) {
  const bool is_culprit = backend.rank() == culprit;
  trial_model model(random_slots(5, 6));
  try {
    auto sync = synchronize_trial(model, std::move(backend), choice);
    for (std::uint64_t number = 0; number < steps; ++number) {
      const bool now = is_culprit && number == 2;
      if (now && what == fault::leaves) {
        return {true, {errc::peer_lost, culprit, 2, -1, {}, ""}};
      }
      auto step = sync.begin_step();
      for (std::uint32_t which = 0; which < model.size(); ++which) {
        if (now && which == 3) {
          if (what == fault::throws) {
            throw std::runtime_error("the data is bad");
          }
          if (what == fault::abandons) {
            return {true, {errc::aborted, culprit, 2, -1, {}, ""}};
          }
          continue;
        }
        step.ready({which});
      }
      step.finish();
    }
  } catch (const sync_error& told) {
    return {true, told.cause()};
  } catch (const std::runtime_error&) {
    return {true, {errc::aborted, culprit, 2, -1, {}, ""}};
  }
  return {};
}

}  // namespace

TEST_CASE("mpi: conforms as a backend, also where no count is over 1000") {
  const testing::watchdog guard("backend conformance of mpi");
  for (const std::size_t count_max : {std::size_t{INT_MAX}, std::size_t{1000}}) {
    run_mpi run({.count_max = count_max});
    const auto report = testing::check_backend(run, {.sizes = {mpi_world::instance().size()}});
    CHECK_MESSAGE(report.passed(), to_string(report));
  }
}

TEST_CASE("mpi: makes groups as it should") {
  const testing::watchdog guard("groups of mpi");
  run_mpi run;
  const auto report = testing::check_split(run, {mpi_world::instance().size()});
  CHECK_MESSAGE(report.passed(), to_string(report));
}

TEST_CASE("mpi: a timeout names the rank that is missing, on every rank") {
  const testing::watchdog guard("timeout over mpi");
  const int size = mpi_world::instance().size();
  run_mpi run({.timeout = 500ms});
  if (size > 1) {
    const auto report = testing::check_backend_timeout(run, {size});
    CHECK_MESSAGE(report.passed(), to_string(report));
  }
}

TEST_CASE("mpi: a grid of groups averages over rows and columns at once, and all are told of a failure") {
  const testing::watchdog guard("grid over mpi");
  if (mpi_world::instance().size() == 4) {
    run_mpi run;
    run(4, [](auto world) { run_grid(world); });
    run(4, [](auto world) {
      std::string told;
      try {
        auto row = row_of(world);
        auto column = column_of(world);
        row.sync().step([&](auto& step) {
          if (world.rank() == 3) {
            throw std::domain_error("out of coffee");
          }
          row.make_ready(step, 0, 0);
          row.make_ready(step, 0, 1);
        });
        column.sync().step([&](auto& step) {
          column.make_ready(step, 0, 1);
          column.make_ready(step, 0, 0);
        });
      } catch (const std::exception& error) {
        told = error.what();
      }
      CHECK_MESSAGE(told.find("out of coffee") != std::string::npos, told);
      CHECK_MESSAGE(
          (world.rank() == 3 || told.find("rank 3 of the job, in the group of ranks 2 and 3") != std::string::npos),
          told);
    });
  }
}

TEST_CASE("laws 1, 3, 5, 6, 8 over mpi: averages are right, the same on all ranks, and the same when repeated") {
  const testing::watchdog guard("average laws over mpi");
  const int size = mpi_world::instance().size();
  run_mpi run;
  std::uint64_t seed = 1;
  for (const policy_choice& choice : policy_choices()) {
    std::vector<std::byte> first;
    run(size, [&](auto backend) { first = train(std::move(backend), choice, ++seed); });
    std::vector<std::byte> of_rank_0 = first;
    MPI_Bcast(of_rank_0.data(), static_cast<int>(of_rank_0.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK_MESSAGE(first == of_rank_0, choice.name);
    run(size, [&](auto backend) { CHECK_MESSAGE(train(std::move(backend), choice, seed) == first, choice.name); });
  }
}

TEST_CASE("law 2 over mpi: whoever fails, all are told one story") {
  const testing::watchdog guard("failure law over mpi");
  const int size = mpi_world::instance().size();
  run_mpi run;
  for (const fault what : {fault::throws, fault::abandons, fault::forgets, fault::leaves}) {
    const policy_choice choice = policy_choices()[static_cast<std::size_t>(what) * 3];
    const int culprit = static_cast<int>(what) % size;
    const auto leaves = what == fault::leaves;
    std::vector<testing::detail::collective_outcome> told(static_cast<std::size_t>(size));
    run(size, [&](auto backend) {
      const auto own = static_cast<std::size_t>(backend.rank());
      told[own] = train_badly(std::move(backend), choice, culprit, what);
    });
    run.gather(told);
    std::optional<std::string> words;
    for (int rank = 0; rank < size; ++rank) {
      const auto& each = told[static_cast<std::size_t>(rank)];
      CHECK(each.threw);
      CHECK_MESSAGE(each.cause.code == (leaves                   ? errc::peer_lost
                                        : what == fault::forgets ? errc::gradient_missing
                                                                 : errc::aborted),
                    to_string(each.cause));
      CHECK_MESSAGE(each.cause.rank == culprit, to_string(each.cause));
      if (rank != culprit) {
        CHECK_MESSAGE(words.value_or(to_string(each.cause)) == to_string(each.cause), *words);
        words = to_string(each.cause);
      }
    }
  }
}

TEST_CASE("docs: a backend over a communicator of the program's") {
  namespace gw = gradweave;
  mpi_world::instance();
  const MPI_Comm workers = MPI_COMM_WORLD;
  // [communicator]
  auto backend = gw::backend::mpi::from_communicator(workers, {.timeout = std::chrono::minutes(2)});
  // [/communicator]
  CHECK(backend.size() == mpi_world::instance().size());
}

TEST_CASE("mpi: a rank that makes no backend is missed in time") {
  const testing::watchdog guard("missing rank over mpi");
  MPI_Comm apart = MPI_COMM_NULL;  // given up after this
  MPI_Comm_dup(MPI_COMM_WORLD, &apart);
  if (mpi_world::instance().rank() != 0) {
    std::string told;
    try {
      (void)backend::mpi::from_communicator(apart, {.timeout = 300ms});
    } catch (const sync_error& error) {
      told = error.what();
    }
    CHECK_MESSAGE(told.find("not all ranks of the communicator made a backend") != std::string::npos, told);
  }
}

// ---- run one by one, by mpi_test.sh: MPI is the library's own here, and the job may end badly ---------------------------

TEST_CASE("owned: MPI begins with the first backend and ends with the last" * doctest::skip()) {
  const testing::watchdog guard("owned mpi");
  {
    auto world = backend::mpi::from_environment();
    const auto arena = world.allocate_arena(100);
    auto group = world.split(0, 0);
    auto copy = std::move(world);
    train(std::move(copy), policy_choices().front(), 3);
    CHECK(backend::mpi::is_alive());
  }
  CHECK_FALSE(backend::mpi::is_alive());
  CHECK_THROWS_AS(backend::mpi::from_environment(), contract_violation);
}

TEST_CASE("owned: a rank fails, and the job ends" * doctest::skip()) {
  const testing::watchdog guard("failure in owned mpi");
  const auto told = train_badly(backend::mpi::from_environment(), policy_choices().front(), 1, fault::throws);
  CHECK(told.threw);
  CHECK(told.cause.rank == 1);
  std::puts("told: one story");
}

TEST_CASE("owned: a rank is killed, and the job ends" * doctest::skip()) {
  const testing::watchdog guard("death in owned mpi");
  auto world = backend::mpi::from_environment();
  if (world.rank() == 1) {
    std::raise(SIGKILL);
  }
  run_collective(world, {.operation = collective::barrier});
}
