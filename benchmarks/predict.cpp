// How long will an all-reduce, or a training step, take on a cluster? The library's own schedules run in virtual time under
// a cost model; no network is needed. Tables say which algorithm is the fastest, and how far the default choice is from it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <gradweave/assert.hpp>
#include <gradweave/bucketing/collective_cost.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/bucketing/fixed_bytes.hpp>
#include <gradweave/bucketing/merge_optimal.hpp>
#include <gradweave/bucketing/needed_first.hpp>
#include <gradweave/bucketing/per_tensor.hpp>
#include <gradweave/bucketing/ready_order.hpp>
#include <gradweave/collective/algorithm.hpp>
#include <gradweave/collective/cost_model.hpp>
#include <gradweave/collective/hierarchical.hpp>
#include <gradweave/collective/prediction.hpp>
#include <gradweave/collective/select.hpp>
#include <gradweave/collective/step_prediction.hpp>

#include "benchmarks/command.hpp"
#include "benchmarks/resnet50.hpp"

namespace {

namespace gw = gradweave;
using gw::bench::bytes_of;

struct predict_options {
  std::vector<std::size_t> hosts = {2, 4, 8, 16, 64};
  int ranks_a_host = 1;
  std::vector<int> uneven;
  double alpha_us = 25;
  double overhead_us = 5;
  double gbit_s = 25;
  double gamma_gb_s = 10;
  double within_alpha_us = 1;
  double within_overhead_us = 0.2;
  double within_gb_s = 10;
  double within_gamma_gb_s = 10;
  std::string begin = "4K";
  std::string end = "64M";
  std::size_t factor = 4;
  std::vector<std::string> algorithms;
  bool openings = true;
  bool share_memory = true;
  bool crossings = true;
  bool step = false;
  double parameters = 25.6e6;
  std::string bucket = "25M";
  double backward_ms = 100;
  bool bucketing = false;
  std::size_t classes = 1000;
};

/// "64K", "1M", or bytes.
std::string size_text(std::size_t bytes) {
  std::size_t unit = 0;
  constexpr std::array units = {"", "K", "M", "G"};
  for (; unit + 1 < units.size() && bytes >= 1024 && bytes % 1024 == 0; ++unit) {
    bytes /= 1024;
  }
  return std::to_string(bytes) + units[unit];
}

gw::cost_model model_of(const predict_options& options) {
  constexpr double us = 1e-6, gb = 1e9;
  gw::cost_model model;
  model.between = {.alpha_s = options.alpha_us * us,
                   .overhead_s = options.overhead_us * us,
                   .beta_s_per_byte = 8 / (options.gbit_s * gb),
                   .gamma_s_per_byte = 1 / (options.gamma_gb_s * gb)};
  model.within = {.alpha_s = options.within_alpha_us * us,
                  .overhead_s = options.within_overhead_us * us,
                  .beta_s_per_byte = 1 / (options.within_gb_s * gb),
                  .gamma_s_per_byte = 1 / (options.within_gamma_gb_s * gb)};
  model.has_openings = options.openings;
  model.check();
  return model;
}

/// Those asked for, or all that can run there.
std::vector<gw::all_reduce_algorithm> algorithms_for(const predict_options& options,
                                                     const gw::host_topology& topology) {
  using enum gw::all_reduce_algorithm;
  std::vector<gw::all_reduce_algorithm> chosen;
  const bool has_groups = topology.hosts() != topology.ranks();
  for (const std::string& name : options.algorithms) {
    const auto known = gw::algorithm_named(name);
    if (!known || *known == automatic) {
      throw std::invalid_argument("'" + name +
                                  "' is no algorithm; give ring, halving_doubling, recursive_doubling, direct, shared "
                                  "or hierarchical");
    }
    if (*known == shared && topology.hosts() != 1) {
      throw std::invalid_argument("algorithm 'shared' is for ranks of one host; there are " +
                                  std::to_string(topology.hosts()) + " hosts: give --hosts 1, or 'hierarchical'");
    }
    chosen.push_back(*known);
  }
  if (chosen.empty()) {
    chosen = {ring, halving_doubling, recursive_doubling, direct};
    if (options.share_memory && has_groups) {
      chosen.push_back(topology.hosts() == 1 ? shared : hierarchical);
    }
  }
  return chosen;
}

/// Of one topology; remembers what it has simulated.
class predictor {
 public:
  predictor(const gw::cost_model& model, const gw::host_topology& topology, bool shares_memory)
      : model_(model),
        topology_(topology),
        selector_(shares_memory ? std::optional<gw::rank_groups>(std::in_place, topology.host_by_rank())
                                : std::nullopt) {}

  const gw::host_topology& topology() const { return topology_; }

  /// Infinite where that world is too large to be simulated; why is said once.
  double seconds(gw::all_reduce_algorithm algorithm, std::size_t bytes) {
    const auto [known, is_new] = known_.try_emplace({algorithm, bytes}, std::numeric_limits<double>::infinity());
    if (is_new) {
      const gw::summed_buffer buffer{.elements = (bytes + 3) / 4, .algorithm = algorithm};
      try {
        known->second = gw::predict_all_reduce(model_, topology_, buffer).seconds;
      } catch (const gw::contract_violation& error) {
        if (refused_.insert(algorithm).second) {
          std::fprintf(stderr, "%s\n", error.what());
        }
      }
    }
    return known->second;
  }

  gw::all_reduce_algorithm fastest(const std::vector<gw::all_reduce_algorithm>& algorithms, std::size_t bytes) {
    return *std::ranges::min_element(algorithms, {}, [&](auto each) { return seconds(each, bytes); });
  }

  /// What a job takes where nothing is said.
  gw::all_reduce_algorithm automatic(std::size_t bytes) const {
    return selector_.choose({0, topology_.ranks()}, bytes);
  }

 private:
  const gw::cost_model& model_;
  const gw::host_topology& topology_;
  gw::schedule_selector selector_;
  std::map<std::pair<gw::all_reduce_algorithm, std::size_t>, double> known_;
  std::set<gw::all_reduce_algorithm> refused_;
};

void print_name(gw::all_reduce_algorithm which) { std::printf(" %20s", std::string(to_string(which)).c_str()); }

void print_table(predictor& predict, const std::vector<gw::all_reduce_algorithm>& algorithms,
                 const std::vector<std::size_t>& sizes) {
  const gw::host_topology& topology = predict.topology();
  std::printf("%d ranks on %d hosts, microseconds; * is the fastest, inf too large to simulate\n%8s", topology.ranks(),
              topology.hosts(), "bytes");
  std::ranges::for_each(algorithms, print_name);
  std::printf(" %20s %8s\n", "automatic takes", "of best");
  for (const std::size_t bytes : sizes) {
    const auto best = predict.fastest(algorithms, bytes);
    std::printf("%8s", size_text(bytes).c_str());
    for (const auto each : algorithms) {
      std::printf(" %19.1f%s", predict.seconds(each, bytes) * 1e6, each == best ? "*" : " ");
    }
    const auto taken = predict.automatic(bytes);
    const double best_seconds = std::min(predict.seconds(best, bytes), predict.seconds(taken, bytes));
    print_name(taken);
    std::printf(" %7.2fx\n",
                best_seconds == predict.seconds(taken, bytes) ? 1 : predict.seconds(taken, bytes) / best_seconds);
    std::fflush(stdout);
  }
}

/// Between sizes at which another algorithm is the fastest, to a part in a hundred; each halving takes the geometric mean.
void print_crossings(predictor& predict, const std::vector<gw::all_reduce_algorithm>& algorithms,
                     const std::vector<std::size_t>& sizes) {
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) {
    for (std::size_t low = sizes[i]; predict.fastest(algorithms, low) != predict.fastest(algorithms, sizes[i + 1]);) {
      const auto before = predict.fastest(algorithms, low);
      std::size_t below = low, above = sizes[i + 1];
      while (above - below > std::max<std::size_t>(16, below / 100)) {
        const auto middle =
            static_cast<std::size_t>(std::sqrt(static_cast<double>(below) * static_cast<double>(above)));
        const std::size_t between = std::clamp(middle / 4 * 4, below + 4, above - 4);
        (predict.fastest(algorithms, between) == before ? below : above) = between;
      }
      const auto after = predict.fastest(algorithms, above);
      std::printf("  from about %zu bytes on, %s is faster than %s\n", above, std::string(to_string(after)).c_str(),
                  std::string(to_string(before)).c_str());
      low = above;
    }
  }
}

/// Of a model whose gradients become ready evenly over the backward pass.
void print_step(predictor& predict, const std::vector<gw::all_reduce_algorithm>& algorithms,
                const predict_options& options) {
  const auto model_bytes = static_cast<std::size_t>(std::llround(options.parameters)) * 4;
  const double backward_s = options.backward_ms / 1000;
  const auto buckets = gw::even_buckets(model_bytes, bytes_of(options.bucket), backward_s);
  std::printf("a step of %.3g parameters in %zu buckets, backward %.1f ms: milliseconds\n", options.parameters,
              buckets.size(), options.backward_ms);
  std::printf("%20s %10s %14s %10s %8s\n", "", "step", "communication", "exposed", "hidden");
  const auto print = [&](const char* name, auto&& seconds_of) {
    if (std::ranges::any_of(buckets, [&](const auto& each) { return !std::isfinite(seconds_of(each.bytes)); })) {
      std::printf("%20s %10s\n", name, "inf");
      return;
    }
    const gw::step_prediction step = gw::predict_step(buckets, backward_s, seconds_of);
    std::printf("%20s %10.2f %14.2f %10.2f %7.0f%%\n", name, step.step_s * 1e3, step.communication_s * 1e3,
                step.exposed_s * 1e3, step.hidden_share() * 100);
  };
  for (const auto each : algorithms) {
    print(std::string(to_string(each)).c_str(), [&](std::size_t bytes) { return predict.seconds(each, bytes); });
  }
  print("automatic", [&](std::size_t bytes) { return predict.seconds(predict.automatic(bytes), bytes); });
}

/// Of ResNet-50, by bucketing policy: plans as they are once ready times are known, all-reduces as the library chooses them.
void print_bucketings(predictor& predict, const predict_options& options) {
  const double backward_s = options.backward_ms / 1000;
  const gw::bench::observed_model model = gw::bench::resnet50(backward_s, options.classes);
  const auto seconds_of = [&](std::size_t bytes) { return predict.seconds(predict.automatic(bytes), bytes); };
  const gw::bucketing::collective_cost cost = gw::bucketing::cost_from(seconds_of);
  const double forward_s = backward_s / 2;
  std::printf(
      "a step of ResNet-50 for %zu classes, %zu gradients, backward %.1f ms, next forward %.1f ms: milliseconds\n",
      options.classes, model.slots.size(), options.backward_ms, forward_s * 1e3);
  std::printf("%20s %10s %10s %14s %10s %8s %14s %8s\n", "", "buckets", "step", "communication", "exposed", "hidden",
              "next forward", "stalls");
  const auto print = [&](const char* name, const auto& policy) {
    const gw::bucket_plan plan = policy.plan({model.slots, model.observed});
    const std::vector<gw::timed_bucket> buckets = model.timed(plan);
    const gw::step_prediction step = gw::predict_step(buckets, backward_s, seconds_of);
    const double end_s = model.next_forward_end(plan, gw::bucket_ends(buckets, seconds_of), backward_s, forward_s);
    std::printf("%20s %10zu %10.2f %14.2f %10.2f %7.0f%% %14.2f %8.2f\n", name, plan.buckets.size(), step.step_s * 1e3,
                step.communication_s * 1e3, step.exposed_s * 1e3, step.hidden_share() * 100, end_s * 1e3,
                (end_s - backward_s - forward_s) * 1e3);
  };
  const gw::bucketing::bucket_caps small{.bucket_bytes_max = std::size_t{4} << 20};
  print("per_tensor", gw::bucketing::per_tensor{});
  print("ready_order 25M", gw::bucketing::ready_order{});
  print("ready_order 4M", gw::bucketing::ready_order{small});
  print("merge_optimal", gw::bucketing::merge_optimal{.cost = cost});
  print("needed_first", gw::bucketing::needed_first{.cost = cost});
}

void add_options(CLI::App& app, predict_options& options) {
  app.option_defaults()->always_capture_default();
  app.add_option("--hosts", options.hosts, "how many hosts, several allowed: 2,8,1000")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000));
  app.add_option("--ranks-a-host", options.ranks_a_host, "on each host")->check(CLI::Range(1, 10'000));
  app.add_option("--uneven", options.uneven, "ranks of each host, instead of both: 8,8,4")
      ->delimiter(',')
      ->check(CLI::Range(1, 10'000));
  const auto cost = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::NonNegativeNumber);
  };
  const auto rate = [&](const char* name, double& value, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(1e-6, 1e6));
  };
  cost("--alpha", options.alpha_us, "between hosts: microseconds a message");
  cost("--overhead", options.overhead_us, "between hosts: of these, how long the sender is busy");
  rate("--bandwidth", options.gbit_s, "between hosts: Gbit/s in each direction, shared by a host's ranks");
  rate("--reduce-bandwidth", options.gamma_gb_s, "between hosts: GB/s at which what arrives is reduced");
  cost("--within-alpha", options.within_alpha_us, "within a host: microseconds a message, or a loan");
  cost("--within-overhead", options.within_overhead_us, "within a host: of these, how long the sender is busy");
  rate("--within-bandwidth", options.within_gb_s, "within a host: GB/s of a rank in each direction");
  rate("--within-reduce-bandwidth", options.within_gamma_gb_s, "within a host: GB/s of reductions and copies");
  app.add_option("-b,--minbytes", options.begin, "the smallest size; K, M and G are understood");
  app.add_option("-e,--maxbytes", options.end, "the largest size");
  app.add_option("-f,--stepfactor", options.factor, "from one size to the next")->check(CLI::Range(2, 1024));
  app.add_option("--algorithms", options.algorithms, "instead of all that can run: ring,direct")->delimiter(',');
  app.add_option("--share-memory", options.share_memory, "0: ranks of a host exchange messages, too");
  app.add_option("--openings", options.openings, "0: as if every rank knew that its peers have entered");
  app.add_option("--crossings", options.crossings, "0: do not look for the sizes between which the fastest changes");
  app.add_flag("--step", options.step, "predict a training step too");
  app.add_flag("--bucketing", options.bucketing, "predict a training step of ResNet-50 by bucketing policy, too");
  app.add_option("--classes", options.classes, "that its last layer tells apart; with 64,000 it has 500 MiB")
      ->check(CLI::Range(1, 1'000'000));
  app.add_option("--parameters", options.parameters, "of the step's model, float32; 25.6e6 is ResNet-50")
      ->check(CLI::Range(1.0, 1e12));
  app.add_option("--bucket", options.bucket, "bytes of the step's buckets");
  app.add_option("--backward", options.backward_ms, "milliseconds of the step's backward pass")
      ->check(CLI::NonNegativeNumber);
}

int run(int count, char** arguments) {
  predict_options options;
  CLI::App app(
      "Predicts all-reduces and training steps on clusters: the library's schedules in virtual time under a cost "
      "model.");
  add_options(app, options);
  CLI11_PARSE(app, count, arguments);
  const gw::cost_model model = model_of(options);
  std::vector<std::size_t> sizes;
  const std::size_t last = bytes_of(options.end);
  for (std::size_t bytes = bytes_of(options.begin); bytes <= last && bytes != 0; bytes *= options.factor) {
    sizes.push_back(bytes);
  }
  if (sizes.empty()) {
    throw std::invalid_argument("there is no size from " + options.begin + " to " + options.end +
                                "; give --minbytes of at least 1 and --maxbytes not below it");
  }
  std::vector<gw::host_topology> topologies;
  if (!options.uneven.empty()) {
    topologies.emplace_back(options.uneven);
  } else {
    for (const std::size_t hosts : options.hosts) {
      topologies.push_back(gw::host_topology::even(hosts, options.ranks_a_host));
    }
  }
  for (const gw::host_topology& topology : topologies) {
    predictor predict(model, topology, options.share_memory);
    const auto algorithms = algorithms_for(options, topology);
    print_table(predict, algorithms, sizes);
    if (options.crossings) {
      print_crossings(predict, algorithms, sizes);
    }
    if (options.step) {
      print_step(predict, algorithms, options);
    }
    if (options.bucketing) {
      print_bucketings(predict, options);
    }
    std::printf("\n");
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) { return gradweave::bench::run_command(run, count, arguments); }
