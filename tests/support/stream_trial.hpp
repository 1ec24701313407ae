/// @file
/// A rank that trains on simulated streams: kernels write its gradients on several streams, and copy the averages away.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

#include "tests/support/simulated_device.hpp"
#include "tests/support/stream_loopback.hpp"

namespace gradweave::tests {

using stream_compression_choice = one_of<compression::none, compression::fp16, compression::bf16>;
using stream_bucketing_choice = one_of<bucketing::ready_order, bucketing::per_tensor>;

struct stream_choice {
  stream_compression_choice compression = compression::none{};
  stream_bucketing_choice bucketing = bucketing::ready_order{{.bucket_bytes_max = 400, .first_bucket_bytes_max = 100}};
  averaging average = averaging::mean;
};

/// Exact in float16 and bfloat16, as its sums over four ranks and their quotients by 1, 2 and 4 are.
inline double stream_value(int rank, std::size_t slot, std::size_t element, std::uint64_t step) {
  return static_cast<double>((static_cast<std::size_t>(rank) * 5 + slot * 3 + element * 7 + step * 11) % 32) - 16;
}

class stream_trainer {
 public:
  static constexpr std::size_t streams = 4;

  stream_trainer(simulated_machine& machine, int rank, std::size_t slots) : machine_(machine), rank_(rank) {
    for (auto& each : computes_) {
      each = machine.make_queue();
    }
    for (std::size_t i = 0; i < slots; ++i) {
      float_slots_.emplace_back(1 + i * 13 % 40);
    }
    residents_.resize(slots);
    half_.resize(7);
    wide_.resize(5);
    adopted_.resize(9);
  }

  stream_trainer(const stream_trainer&) = delete;
  stream_trainer& operator=(const stream_trainer&) = delete;
  ~stream_trainer() { wait(); }

  /// Gradients of all residences and kinds.
  manifest make_manifest() {
    manifest gradients;
    for (std::size_t i = 0; i < float_slots_.size(); ++i) {
      const std::string name = "slot" + std::to_string(i);
      if (i % 2 == 0) {
        gradients.add(name, float_slots_[i]);
      } else {
        residents_[i] = float_slots_[i];
        gradients.add(name, in_arena(residents_[i]));
      }
    }
    gradients.add("half", half_);
    gradients.add("wide", wide_);
    gradients.add_range("adopted", adopted_.data(), adopted_.size());
    return gradients;
  }

  std::size_t slots() const { return float_slots_.size() + 3; }
  const simulated_device::stream& main() const { return computes_[0]; }
  std::span<const simulated_device::stream> streams_used() const { return computes_; }

  /// Enqueues what computes gradient `which` in `step` on its stream, which it returns.
  const simulated_device::stream& compute(std::size_t which, std::uint64_t step) {
    const auto& on = computes_[which % streams];
    run(on, [this, which, step] {
      visit(which, [&](auto values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = convert<std::remove_reference_t<decltype(values[i])>>(stream_value(rank_, which, i, step));
        }
      });
    });
    return on;
  }

  /// Enqueues a copy of all gradients, behind what is on the main stream; other streams wait for that.
  void take(std::uint64_t step) {
    results_.resize(step + 1);
    run(main(), [this, to = &results_, step] {
      for (std::size_t which = 0; which < slots(); ++which) {
        visit(which, [&](auto values) {
          for (std::size_t i = 0; i < values.size(); ++i) {
            (*to)[step].push_back(number(values[i]));
          }
        });
      }
    });
    order_streams();
  }

  /// The other streams wait for the main one, which has waited for the step's end.
  void order_streams() {
    for (std::size_t i = 1; i < streams; ++i) {
      wait_for_main(computes_[i]);
    }
  }

  /// The greatest difference from the averages over `ranks`, in what was taken after `step`; infinite where there is none.
  double error(int ranks, std::uint64_t step, bool sums) {
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t which = 0; which < slots(); ++which) {
      visit(which, [&](auto values) {
        for (std::size_t i = 0; i < values.size(); ++i, ++at) {
          double expected = 0;
          for (int r = 0; r < ranks; ++r) {
            expected += stream_value(r, which, i, step);
          }
          expected /= sums ? 1 : ranks;
          const double difference = results_[step].size() <= at ? 1e9 : std::abs(results_[step][at] - expected);
          worst = difference <= worst ? worst : difference == difference ? difference : 1e9;
        }
      });
    }
    return worst;
  }

  const std::vector<std::vector<double>>& results() const { return results_; }
  void reserve(std::size_t steps) { results_.reserve(steps); }
  /// Until all its streams are idle: what runs on them refers to the trainer.
  void wait() {
    for (const auto& each : computes_) {
      machine_.wait(last(each));
    }
  }

 private:
  simulated_machine::mark last(const simulated_device::stream& on) {
    std::lock_guard lock(machine_.mutex);
    return {on, on->enqueued};
  }
  template <class Work>
  void run(const simulated_device::stream& on, Work work) {
    const simulation_scope not_counted;
    machine_.enqueue(on, {.work = std::move(work), .after = {}, .communicator = {}, .rank = 0, .request = {}});
  }
  void wait_for_main(const simulated_device::stream& on) {
    const simulation_scope not_counted;
    machine_.enqueue(on, {.work = {}, .after = last(main()), .communicator = {}, .rank = 0, .request = {}});
  }

  template <class T>
  static T convert(double value) {
    if constexpr (std::same_as<T, float16>) {
      return to_float16(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
  static double number(float16 value) { return static_cast<double>(to_float32(value)); }
  static double number(double value) { return value; }

  template <class Use>
  void visit(std::size_t which, Use&& use) {
    const std::size_t floats = float_slots_.size();
    if (which < floats) {
      use(which % 2 == 0 ? std::span<float>(float_slots_[which]) : residents_[which]);
    } else if (which == floats) {
      use(std::span<float16>(half_));
    } else if (which == floats + 1) {
      use(std::span<double>(wide_));
    } else {
      use(std::span<float>(adopted_));
    }
  }

  simulated_machine& machine_;
  int rank_;
  std::array<simulated_device::stream, streams> computes_;
  std::vector<std::vector<float>> float_slots_;
  std::vector<std::span<float>> residents_;
  std::vector<float16> half_;
  std::vector<double> wide_;
  std::vector<float> adopted_;
  std::vector<std::vector<double>> results_;
};

inline auto synchronize_streams(stream_trainer& trainer, stream_rank own, const stream_choice& choice = {}) {
  return synchronize(trainer.make_manifest(), std::move(own.backend), own.overlap, choice.compression, choice.bucketing,
                     choice.average);
}

/// One step: every gradient is computed and ready, in an order of the rank's own.
template <class Synchronizer>
void run_stream_step(Synchronizer& sync, stream_trainer& trainer, std::uint64_t step, std::uint64_t seed) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t which = 0; which < trainer.slots(); ++which) {
    order.push_back(which);
  }
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  sync.step(trainer.main(), [&](auto& open) {
    for (const std::uint32_t which : order) {
      open.ready({which}, trainer.compute(which, step));
    }
  });
  trainer.take(step);
}

}  // namespace gradweave::tests
