// How much of a step's communication hides behind the passes around it? Steps of ResNet-50's gradients over TCP, as a rank
// of a launcher's job, with several policies in turns. The passes are emulated: in the backward pass each gradient is ready
// at its time, in the next forward pass each layer waits for its gradients and then takes its time; meanwhile the rank
// sleeps, as one does whose accelerator computes.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <gradweave/backend/tcp.hpp>
#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/gradweave.hpp>

#include "benchmarks/command.hpp"
#include "benchmarks/resnet50.hpp"

namespace {

namespace gw = gradweave;
using seconds = std::chrono::duration<double>;
using backend = gw::backend::tcp::backend_type;
using any_bucketing = gw::one_of<gw::bucketing::fixed_bytes, gw::bucketing::ready_order, gw::bucketing::merge_optimal,
                                 gw::bucketing::needed_first>;
using any_overlap = gw::one_of<gw::overlap::blocking, gw::overlap::progress_thread>;

struct measured_options {
  std::size_t steps = 9;
  std::size_t warm_up = 3;
  double backward_ms = 0;
  double forward_ms = 0;
};

/// One choice of policies, with gradients of its own.
class candidate {
 public:
  candidate(std::string name, backend group, any_bucketing bucketing, any_overlap overlap)
      : name_(std::move(name)), model_(gw::bench::resnet50(1)) {
    gw::manifest gradients;
    for (std::size_t i = 0; i < model_.slots.size(); ++i) {
      values_.emplace_back(model_.slots[i].bytes / sizeof(float), 1.0F);
    }
    for (std::size_t i = 0; i < values_.size(); ++i) {
      slots_.push_back(gradients.add("gradient " + std::to_string(i), values_[i]));
    }
    sync_ = std::make_unique<synchronizer>(
        gw::synchronize(std::move(gradients), std::move(group), std::move(bucketing), std::move(overlap)));
  }

  const std::string& name() const { return name_; }

  /// A step whose backward pass takes so long, and the forward pass after it. What both take, and what of that is waited
  /// for.
  void run(seconds backward, seconds forward, bool counts) {
    const auto began = std::chrono::steady_clock::now();
    auto step = sync_->begin_step();
    for (const gw::ready_event& event : model_.observed) {
      std::this_thread::sleep_until(
          began + std::chrono::duration_cast<std::chrono::nanoseconds>(backward * seconds(event.when).count()));
      step.ready(slots_[event.which.index]);
    }
    step.close();
    for (std::size_t i = 0; i < slots_.size() && forward.count() > 0; ++i) {
      step.wait(slots_[i]);
      if (model_.work[i] > 0) {
        std::this_thread::sleep_for(forward * model_.work[i]);
      }
    }
    step.finish();
    if (counts) {
      whole_ms_.push_back(1e3 * seconds(std::chrono::steady_clock::now() - began).count());
      exposed_ms_.push_back(1e3 * seconds(sync_->last_step().whole.exposed_time).count());
    }
  }

  double whole_ms() { return median(whole_ms_); }
  double exposed_ms() { return median(exposed_ms_); }
  std::size_t buckets() const { return sync_->last_step().buckets.size(); }

 private:
  using synchronizer = decltype(gw::synchronize(gw::manifest{}, std::declval<backend>(), std::declval<any_bucketing>(),
                                                std::declval<any_overlap>()));

  static double median(std::vector<double>& values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  std::string name_;
  gw::bench::observed_model model_;
  std::vector<std::vector<float>> values_;
  std::vector<gw::slot> slots_;
  std::unique_ptr<synchronizer> sync_;
  std::vector<double> whole_ms_;
  std::vector<double> exposed_ms_;
};

/// How long communication takes where nothing hides it; the same on all ranks.
seconds communication_alone(backend& world, candidate& blocking, std::size_t steps) {
  double alone_s = 0;
  for (std::size_t i = 0; i < steps; ++i) {
    blocking.run(seconds(0), seconds(0), true);
  }
  alone_s = blocking.exposed_ms() / 1e3;
  const gw::extent value{reinterpret_cast<std::byte*>(&alone_s), sizeof alone_s, 0};
  gw::run_collective(world, {.operation = gw::collective::broadcast, .root = 0, .data = {&value, 1}});
  return seconds(alone_s);
}

std::vector<candidate> candidates_of(backend& world) {
  const gw::bucketing::collective_cost cost = gw::bucketing::measure_cost(world);
  const auto group = [&] { return world.split(0, world.rank()).value(); };
  std::vector<candidate> all;
  all.emplace_back("blocking, ready_order", group(), gw::bucketing::ready_order{}, gw::overlap::blocking{});
  all.emplace_back("progress_thread, fixed_bytes", group(), gw::bucketing::fixed_bytes{},
                   gw::overlap::progress_thread{});
  all.emplace_back("progress_thread, ready_order", group(), gw::bucketing::ready_order{},
                   gw::overlap::progress_thread{});
  all.emplace_back("progress_thread, ready_order 4 MiB", group(),
                   gw::bucketing::ready_order{{.bucket_bytes_max = std::size_t{4} << 20}},
                   gw::overlap::progress_thread{});
  all.emplace_back("progress_thread, merge_optimal", group(), gw::bucketing::merge_optimal{.cost = cost},
                   gw::overlap::progress_thread{});
  all.emplace_back("progress_thread, needed_first 4 MiB", group(), gw::bucketing::needed_first{.cost = cost},
                   gw::overlap::progress_thread{});
  if (world.rank() == 0) {
    std::printf("# cost measured: %.0f us a bucket, %.2f ns a byte\n", cost.alpha_s * 1e6, cost.beta_s_per_byte * 1e9);
  }
  return all;
}

int run(int count, char** arguments) {
  measured_options options;
  CLI::App app(
      "Measures how much of a step's communication hides behind the backward pass, with several policies in "
      "turns. Start it on each rank by a launcher, for example benchmarks/namespaces.sh.");
  app.option_defaults()->always_capture_default();
  app.add_option("-n,--steps", options.steps, "measured steps of each")->check(CLI::Range(1, 10'000));
  app.add_option("-w,--warm-up", options.warm_up, "steps of each before that; plans are made in the first two")
      ->check(CLI::Range(2, 10'000));
  app.add_option("--backward", options.backward_ms,
                 "milliseconds of the backward pass; 0: as long as communication takes")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option(
         "--forward", options.forward_ms,
         "milliseconds of a forward pass that begins with the end of the backward pass and waits for each gradient; "
         "0: none, the step ends at once")
      ->check(CLI::Range(0.0, 1e6));
  CLI11_PARSE(app, count, arguments);

  backend world = gw::backend::tcp::from_environment();
  seconds communication{};
  {
    candidate alone("alone", world.split(0, world.rank()).value(), gw::bucketing::ready_order{},
                    gw::overlap::blocking{});
    alone.run(seconds(0), seconds(0), false);
    communication = communication_alone(world, alone, 3);
  }
  const seconds backward = options.backward_ms > 0 ? seconds(options.backward_ms / 1e3) : communication;
  const seconds forward(options.forward_ms / 1e3);
  std::vector<candidate> all = candidates_of(world);
  for (std::size_t i = 0; i < options.warm_up; ++i) {
    for (candidate& each : all) {
      each.run(backward, forward, false);  // plans are made by the times that are measured later
    }
  }
  for (std::size_t i = 0; i < options.steps; ++i) {
    for (candidate& each : all) {
      each.run(backward, forward, true);
    }
  }
  if (world.rank() == 0) {
    std::printf(
        "# ResNet-50, %d ranks; communication alone %.0f ms, backward pass %.0f ms, forward pass %.0f ms; medians of "
        "%zu steps\n",
        world.size(), communication.count() * 1e3, backward.count() * 1e3, options.forward_ms, options.steps);
    std::printf("%-36s %8s %10s %12s %20s\n", "# policies", "buckets", "step (ms)", "exposed (ms)", "of blocking's");
    for (candidate& each : all) {
      std::printf("%-36s %8zu %10.1f %12.1f %20.2f\n", each.name().c_str(), each.buckets(), each.whole_ms(),
                  each.exposed_ms(), each.exposed_ms() / all.front().exposed_ms());
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return gw::bench::run_command(run, count, arguments); }
