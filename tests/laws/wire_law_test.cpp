// Laws 5 and 7: all ranks run the same collectives in the same order; bytes on the wire are what the formulas say.
#include <gradweave/gradweave.hpp>

#include <mutex>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

#include "tests/support/brief.hpp"
#include "tests/support/networks.hpp"
#include "tests/support/plans.hpp"
#include "tests/support/trial.hpp"

using namespace gradweave;
using namespace gradweave::tests;

namespace {

/// A backend that writes down what it was asked for.
class recording_backend {
 public:
  static constexpr memory_space space = any_backend::space;
  static constexpr execution_model execution = any_backend::execution;
  static constexpr collective_set capabilities = any_backend::capabilities;

  recording_backend(any_backend inner, std::vector<std::string>& log) : inner_(std::move(inner)), log_(&log) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  auto allocate_arena(std::size_t bytes) { return inner_.allocate_arena(bytes); }
  void start(const collective_request& request) {
    log_->push_back(
        std::string(to_string(request.operation)) + " " + std::string(element_name(request.kind)) + " plan " +
        std::to_string(request.plan_version) + " " +
        std::to_string(total_bytes(request.operation == collective::all_to_all ? request.source : request.data)));
    inner_.start(request);
  }
  bool poll() { return inner_.poll(); }
  void wait() { inner_.wait(); }
  failure abort(failure cause) { return inner_.abort(std::move(cause)); }
  std::uint64_t payload_bytes_sent() const { return inner_.payload_bytes_sent(); }
  void describe(description& sink) const { inner_.describe(sink); }

 private:
  any_backend inner_;
  std::vector<std::string>* log_;
};

/// What one step sends, all ranks together. Sums of what is compressed are made in two phases, whatever the algorithm.
std::uint64_t bytes_of_step(const std::vector<trial_slot>& slots, compression_name compression, int size,
                            all_reduce_algorithm algorithm) {
  std::uint64_t in_two_phases = 0;
  std::uint64_t in_one = 0;
  for (const trial_slot& each : slots) {
    const bool compressed = (compression == compression_name::fp16 || compression == compression_name::bf16) &&
                            each.kind != element_kind::float64;
    (compressed ? in_two_phases : in_one) += each.elements * (compressed ? 2 : element_bytes(each.kind));
  }
  const auto peers = static_cast<std::uint64_t>(size) - 1;
  constexpr std::uint64_t record = 64;
  return elements_sent(algorithm, size, in_one) + 2 * peers * in_two_phases + (peers + 1) * peers * record;
}

}  // namespace

TEST_CASE("law 5: all ranks launch the same collectives in the same order") {
  const testing::watchdog guard("law 5");
  for (const law_case& each : networks_and_policies()) {
    const network over = each.over;
    const policy_choice& choice = each.choice;
    for (const int size : tests::world_sizes({2, 3, 4})) {
      const auto slots = random_slots(static_cast<std::uint64_t>(size) + 40, 12);
      std::vector<std::vector<std::string>> logs(static_cast<std::size_t>(size));
      run_ranks(over, size, [&](any_backend backend) {
        const int rank = backend.rank();
        trial_model model(slots);
        auto sync = synchronize_trial(
            model, recording_backend(std::move(backend), logs[static_cast<std::size_t>(rank)]), choice);
        for (std::uint64_t s = 0; s < 3; ++s) {
          sync.step([&](auto& step) {
            for (const std::uint32_t which : shuffled_slots(slots.size(), 9, rank, s)) {
              step.ready({which});
            }
          });
        }
      });
      CHECK(logs[0].size() > 3 * slots.size() / 12);
      for (const auto& log : logs) {
        CHECK_MESSAGE(log == logs[0], name_of(over) << " " << choice.name);
      }
    }
  }
}

TEST_CASE("law 7: bytes on the wire are the algorithm's factor times the encoded gradients, and the step record") {
  const testing::watchdog guard("law 7");
  std::size_t turn = 0;
  for (const law_case& each : networks_and_policies()) {
    const network over = each.over;
    const policy_choice& choice = each.choice;
    for (const int size : tests::world_sizes({1, 2, 3, 4})) {
      const auto slots = random_slots(static_cast<std::uint64_t>(size) + 60, 15);
      constexpr std::uint64_t steps = 3;
      std::mutex adding;
      std::uint64_t sent = 0;
      constexpr std::array algorithms = {all_reduce_algorithm::ring, all_reduce_algorithm::recursive_doubling,
                                         all_reduce_algorithm::halving_doubling, all_reduce_algorithm::direct};
      const all_reduce_algorithm algorithm = algorithms[turn++ % algorithms.size()];
      const auto body = [&](any_backend backend) {
        trial_model model(slots);
        auto sync = synchronize_trial(model, std::move(backend), choice);
        for (std::uint64_t s = 0; s < steps; ++s) {
          sync.step([&](auto& step) {
            for (std::uint32_t which = 0; which < slots.size(); ++which) {
              step.ready({which});
            }
          });
        }
        const std::lock_guard lock(adding);
        sent += sync.statistics().bytes_on_wire;
      };
      run_ranks(over, size, body, {.algorithm = algorithm});
      CHECK_MESSAGE(
          sent == steps * bytes_of_step(slots, choice.compresses, size, algorithm),
          name_of(over) << " " << choice.name << " at " << size << " ranks by " << std::string(to_string(algorithm)));
    }
  }
}

TEST_CASE("laws 1 and 7: slots that travel in slices end with the bits that they have whole, for as many bytes") {
  const testing::watchdog guard("slices");
  const std::vector<trial_slot> slots = {{element_kind::float32, 100, residence::own},
                                         {element_kind::float64, 9000, residence::adopted},
                                         {element_kind::bfloat16, 30'001, residence::arena},
                                         {element_kind::float32, 20'000, residence::own}};
  constexpr std::uint64_t steps = 3;
  for (policy_choice choice : policy_choices()) {
    for (const network over : {network::loopback, network::shared_memory}) {
      const int size = over == network::loopback ? 3 : 2;
      std::vector<std::vector<std::byte>> ends[2];
      for (const bool cut : {false, true}) {
        choice.bucketing = cut ? any_bucketing(in_slices()) : any_bucketing(bucketing::per_tensor{});
        std::mutex adding;
        std::uint64_t sent = 0;
        const auto body = [&](any_backend backend) {
          trial_model model(slots);
          auto sync = synchronize_trial(model, std::move(backend), choice);
          for (std::uint64_t s = 0; s < steps; ++s) {
            sync.step([&](auto& step) {
              for (auto which = static_cast<std::uint32_t>(slots.size()); which-- > 0;) {
                model.fill(5, sync.rank(), s, which);
                step.ready({which});
              }
            });
          }
          const std::lock_guard lock(adding);
          CHECK(has_slices(sync.plan()) == cut);
          sent += sync.statistics().bytes_on_wire;
          ends[cut ? 1 : 0].push_back(model.bytes());
        };
        // Sums in the order of ranks, however a bucket is cut.
        run_ranks(over, size, body, {.algorithm = all_reduce_algorithm::direct});
        CHECK_MESSAGE(sent == steps * bytes_of_step(slots, choice.compresses, size, all_reduce_algorithm::direct),
                      name_of(over) << " " << choice.name << (cut ? " in slices" : ""));
      }
      ends[0].insert(ends[0].end(), ends[1].begin(), ends[1].end());
      for (const auto& each : ends[0]) {
        CHECK_MESSAGE(each == ends[0][0], name_of(over) << " " << choice.name);
      }
    }
  }
}
