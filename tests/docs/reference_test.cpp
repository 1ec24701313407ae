// The code that docs/reference/ quotes and no example holds: how each conformance kit is called.
#include <gradweave/gradweave.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/archetypes.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/bucketing_conformance.hpp>
#include <gradweave/testing/codec_conformance.hpp>
#include <gradweave/testing/compression_conformance.hpp>
#include <gradweave/testing/overlap_conformance.hpp>
#include <gradweave/testing/simulated_network.hpp>
#include <gradweave/testing/split_conformance.hpp>
#include <gradweave/testing/tensor_conformance.hpp>
#include <gradweave/testing/transport_conformance.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

TEST_CASE("reference: rules of steps") {
  const gt::watchdog guard("reference: rules of steps");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> table(4, 3), weights(4, 1);
    const bool trains_head = backend.rank() == 1;
    const std::uint64_t samples_here = trains_head ? 3 : 1;
    // [rules]
    gw::manifest gradients;
    const gw::slot embedding = gradients.add("embedding", table, gw::uses{2});  // two parts of the model share it
    const gw::slot head = gradients.add("head", weights);
    auto sync =
        gw::synchronize(std::move(gradients), std::move(backend), gw::unused::zero_fill, gw::averaging::weighted_mean);
    sync.accumulate([&](auto& step) {  // sends nothing: what it leaves in the gradients is yours to add to
      step.ready(embedding);
      step.ready(embedding);
      step.ready(head);
    });
    sync.step(
        [&](auto& step) {
          step.ready(embedding);
          step.ready(embedding);  // now it is complete
          if (trains_head) {
            step.ready(head);
          }
        },
        {.samples = samples_here});
    // [/rules]
    CHECK(table[0] == 3);
    CHECK(weights[0] == 1);  // on rank 0 it is what was accumulated
  });
}

TEST_CASE("reference: buffers") {
  const gt::watchdog guard("reference: buffers");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> weights(4), running_mean(4);
    std::vector<std::int64_t> batches(1);
    const int rank = backend.rank();
    // [buffers]
    gw::manifest gradients;
    const gw::slot layer = gradients.add("layer", weights);
    gradients.add_buffer("batches", batches);
    gradients.add_buffer("running mean", running_mean, gw::buffer_rule::average());
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    // [/buffers]
    sync.step([&](auto& step) {
      ++batches[0];
      running_mean.assign(4, static_cast<float>(rank));
      step.ready(layer);
    });
    CHECK(batches[0] == 1);
    CHECK(running_mean[3] == 0.5F);
  });
}

TEST_CASE("reference: a grid of ranks") {
  const gt::watchdog guard("reference: a grid of ranks");
  const auto train = [](auto world) {
    std::vector<float> shard(8, static_cast<float>(world.rank())), norm(2, static_cast<float>(world.rank()));
    // [grid]
    const int part = world.rank() % 2;                        // of the model, which is cut in two
    auto replicas = world.split(part, world.rank()).value();  // ranks that hold the same part
    gw::manifest parts, common;
    const gw::slot weights = parts.add("weights", shard);  // this part's
    const gw::slot scale = common.add("scale", norm);      // what every rank has
    auto over_replicas = gw::synchronize(std::move(parts), std::move(replicas));
    auto over_all = gw::synchronize(std::move(common), std::move(world));

    auto step_of_parts = over_replicas.begin_step();
    auto step_of_all = over_all.begin_step();
    step_of_all.ready(scale);
    step_of_parts.ready(weights);
    gw::finish_all(step_of_parts, step_of_all);
    // [/grid]
    CHECK(shard[7] == 1 + static_cast<float>(part));
    CHECK(norm[1] == 1.5F);
  };
  gw::backend::run_loopback(4, train);
}

TEST_CASE("reference: statistics") {
  const gt::watchdog guard("reference: statistics");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> weights(4, 1);
    gw::manifest gradients;
    const gw::slot head = gradients.add("head", weights);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    sync.step([&](auto& step) { step.ready(head); });
    std::chrono::nanoseconds logged{};
    const auto log = [&](std::chrono::nanoseconds time) { logged += time; };
    // [statistics]
    const gw::sync_statistics& all = sync.statistics();  // sums over steps
    const gw::step_statistics& last = sync.last_step();
    for (const gw::bucket_statistics& bucket : last.buckets) {
      if (bucket.exposed > last.whole.exposed_time / 2) {
        log(bucket.finished - bucket.launched);
      }
    }
    if (last.slowest.cause == gw::late_in::network) {
      log(last.slowest.behind);
    }
    const std::string words = sync.report();
    // [/statistics]
    CHECK(all.steps == 1);
    CHECK(logged.count() >= 0);
    CHECK(words.find("backward") != std::string::npos);
  });
}

TEST_CASE("reference: the kit of tensors") {
  // [tensor_kit]
  const auto report = gt::check_tensor([] { return std::vector<float>(12); },
                                       {.kind = gw::element_kind::float32, .shape = gw::tensor_shape(std::array{12})});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  // [/tensor_kit]
}

TEST_CASE("reference: the kit of backends") {
  const gt::watchdog guard("reference: the kit of backends");
  // [backend_kit]
  const auto report =
      gt::check_backend([](int size, auto&& body) { gw::backend::run_loopback(size, body); }, {.sizes = {1, 3}});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));

  const auto on_time = gt::check_backend_timeout(
      [](int size, auto&& body) { gw::backend::run_loopback(size, body, {.timeout = std::chrono::milliseconds(300)}); },
      {2});
  CHECK_MESSAGE(on_time.passed(), gt::to_string(on_time));
  // [/backend_kit]
}

TEST_CASE("reference: the kit of groups") {
  // [split_kit]
  const auto report = gt::check_split([](int size, auto&& body) { gw::backend::run_loopback(size, body); }, {3});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  // [/split_kit]
}

TEST_CASE("reference: the kit of transports") {
  const gt::watchdog guard("reference: the kit of transports");
  // [transport_kit]
  const auto report = gt::check_transport([](int size) { return gw::in_process_transport::connect(size); });
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  // [/transport_kit]
}

TEST_CASE("reference: a simulated network") {
  const gt::watchdog guard("reference: a simulated network");
  std::vector<gw::failure> told;
  const auto train = [](auto backend) {
    std::vector<float> gradient(100, 1);
    gw::manifest gradients;
    const gw::slot weights = gradients.add("weights", gradient);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), gw::overlap::blocking{});
    for (int step = 0; step < 1000; ++step) {
      sync.step([&](auto& open) { open.ready(weights); });
    }
  };
  // [simulation]
  gt::virtual_time time;
  gt::simulated_network network(
      time, {.size = 3, .seed = 7, .fault = {.kind = gt::fault_kind::stall, .rank = 2, .after_calls = 500}});
  network.run([&](gt::simulated_transport end) {
    try {
      train(gw::backend::scheduled("simulated", std::move(end)));
    } catch (const gw::sync_error& error) {
      told.push_back(error.cause());  // one rank at a time runs: nothing has to be locked
    }
  });
  CHECK(network.now() - gw::deadline{} > std::chrono::minutes(5));  // the usual timeout, and no time to wait for it
  CHECK(told.front().rank == 2);
  // [/simulation]
  CHECK(told.size() == 3);
  CHECK_FALSE(network.hung());
}

TEST_CASE("reference: a backend from a transport") {
  // [scheduled]
  std::vector<gw::backend::scheduled<gw::in_process_transport>> ranks;
  for (gw::in_process_transport& end : gw::in_process_transport::connect(1)) {
    ranks.emplace_back("in-process", std::move(end),
                       gw::backend::scheduled_options{.timeout = std::chrono::seconds(30)});
  }
  // [/scheduled]
  gw::run_collective(ranks.front(), {.operation = gw::collective::barrier});
  CHECK(ranks.front().size() == 1);
}

TEST_CASE("reference: the kit of bucketing policies") {
  // [bucketing_kit]
  const auto report = gt::check_bucketing(gw::bucketing::fixed_bytes{{.bucket_bytes_max = 4096}}, {.seed = 7});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));

  // What any policy owes: values that differ say so. Give values with each option changed in turn.
  const auto told =
      gt::check_description({gw::bucketing::fixed_bytes{}, {{.bucket_bytes_max = 1}}, {{.first_bucket_bytes_max = 1}}});
  CHECK_MESSAGE(told.passed(), gt::to_string(told));
  // [/bucketing_kit]
}

TEST_CASE("reference: the kits of codecs and compression policies") {
  const gt::watchdog guard("reference: the kits of codecs and compression policies");
  // [codec_kit]
  // One encoding and decoding errs by at most one rounding to bfloat16.
  const auto report = gt::check_codec(gw::compression::bf16{}, {.bound = gt::rounding_of(gw::element_kind::bfloat16)});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  // [/codec_kit]

  // [compression_kit]
  const gw::compression::bf16 by;
  gt::compression_conformance_options options;
  // The average errs by two roundings to bfloat16, the float32 sums, and the storing of the result.
  options.bound = [](gw::element_kind kind, int size) {
    const double stored = gt::rounding_of(kind).relative;
    return gt::rounding_bound{.relative = 1.01 * (2 * 0x1p-8 + size * 0x1p-24 + stored), .absolute = 0x1p-24};
  };
  options.bytes_sent = [&](const gw::bucket_layout& layout, int size) { return gt::two_phase_bytes(by, layout, size); };
  options.kinds = {gw::element_kind::float32, gw::element_kind::bfloat16};
  options.sizes = {1, 3};
  const auto reduced = gt::check_compression(gw::compression::as_compression(by), options);
  CHECK_MESSAGE(reduced.passed(), gt::to_string(reduced));
  // [/compression_kit]
}

TEST_CASE("reference: merge_optimal") {
  const gt::watchdog guard("reference: merge_optimal");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> table(4, 1);
    gw::manifest gradients;
    gradients.add("embedding", table);
    // [merge_optimal]
    const gw::bucketing::merge_optimal merged{.cost = gw::bucketing::measure_cost(backend)};  // on every rank
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), merged);
    // [/merge_optimal]
    CHECK(sync.plan().buckets.size() == 1);
  });
}

TEST_CASE("reference: needed_first") {
  const gt::watchdog guard("reference: needed_first");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> table(4, static_cast<float>(backend.rank()));
    gw::manifest gradients;
    const gw::slot layer = gradients.add("embedding", table);
    // [needed_first]
    const gw::bucketing::needed_first prioritized{.cost = gw::bucketing::measure_cost(backend)};  // on every rank
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), prioritized);
    auto step = sync.begin_step();
    step.ready(layer);  // as the backward pass has it
    step.close();       // the end of the backward pass
    step.wait(layer);   // before the next forward pass reaches the layer; others still travel
    const auto done = step.finish();
    // [/needed_first]
    CHECK(done.step == 0);
    CHECK(table[3] == 0.5F);
  });
}

TEST_CASE("reference: a hook") {
  const gt::watchdog guard("reference: a hook");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> table(4, backend.rank() == 0 ? 3.0F : -100.0F);
    gw::manifest gradients;
    const gw::slot embedding = gradients.add("embedding", table);
    // [hook]
    const auto clamped = gw::compression::hook("clamp each rank's values to 1", [](auto& bucket) {
      bucket.transform([](auto value) { return std::clamp<decltype(value)>(value, -1, 1); });
    });
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), clamped.over(gw::compression::bf16{}));
    // [/hook]
    sync.step([&](auto& step) { step.ready(embedding); });
    CHECK(table[0] == 0);
  });
}

TEST_CASE("reference: the kit of overlap policies") {
  const gt::watchdog guard("reference: the kit of overlap policies");
  // [overlap_kit]
  const auto report = gt::check_overlap(gw::overlap::progress_thread{}, {.steps = 10, .threads = 2});
  CHECK_MESSAGE(report.passed(), gt::to_string(report));
  // [/overlap_kit]
}
