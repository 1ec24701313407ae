// The code that docs/tutorial.md quotes. Each region is checked by what follows it.
#include <gradweave/gradweave.hpp>

#include <cstddef>
#include <exception>
#include <functional>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;

namespace {

// [trainer]
struct layer {
  std::string name;
  std::vector<float> weights;
  std::vector<float> gradient;
};

/// The loss is half the squared distance of all weights from `target`. Like any backward pass it begins with the last
/// layer. It calls `done(i)` when the gradient of layer i is complete.
void backward(std::vector<layer>& model, float target, const std::function<void(std::size_t)>& done) {
  for (std::size_t i = model.size(); i-- > 0;) {
    for (std::size_t k = 0; k < model[i].weights.size(); ++k) {
      model[i].gradient[k] = model[i].weights[k] - target;
    }
    done(i);
  }
}

void update(std::vector<layer>& model, float learning_rate) {
  for (layer& each : model) {
    for (std::size_t k = 0; k < each.weights.size(); ++k) {
      each.weights[k] -= learning_rate * each.gradient[k];
    }
  }
}

void train_alone(std::vector<layer>& model, std::span<const float> targets) {
  for (const float target : targets) {
    backward(model, target, [](std::size_t) {});
    update(model, 0.25F);
  }
}
// [/trainer]

// [synchronized]
template <gw::host_backend Backend>
void train(std::vector<layer>& model, Backend backend, std::span<const float> own_targets) {
  gw::manifest gradients;
  std::vector<gw::slot> slots;
  for (layer& each : model) {
    slots.push_back(gradients.add(each.name, each.weights, each.gradient));  // parameter, then gradient
  }
  auto sync = gw::synchronize(std::move(gradients), std::move(backend));  // weights are those of rank 0 from here on

  for (const float target : own_targets) {
    sync.step([&](auto& step) {
      backward(model, target, [&](std::size_t i) { step.ready(slots[i]); });
    });  // gradients are averages over all ranks from here on
    update(model, 0.25F);
  }
}
// [/synchronized]

std::vector<layer> make_model(float initial) {
  std::vector<layer> model;
  for (const char* name : {"first", "second", "third"}) {
    model.push_back({name, std::vector<float>(40, initial), std::vector<float>(40)});
  }
  return model;
}

/// What a step brought, for the tests below.
template <class Synchronizer>
gw::step_result step_with(Synchronizer& sync, gw::slot slot) {
  return sync.step([&](auto& step) { step.ready(slot); });
}

}  // namespace

TEST_CASE("tutorial: two ranks that see 1 and 3 learn what one process learns that sees 2") {
  const gw::testing::watchdog guard("tutorial");
  std::vector<layer> alone = make_model(0);
  const std::vector<float> means(20, 2);
  train_alone(alone, means);
  std::vector<std::vector<layer>> models = {make_model(0), make_model(1)};
  const std::vector<std::vector<float>> targets = {std::vector<float>(20, 1), std::vector<float>(20, 3)};
  // [ranks]
  gw::backend::run_loopback(2, [&](gw::backend::loopback backend) {
    const auto rank = static_cast<std::size_t>(backend.rank());
    train(models[rank], std::move(backend), targets[rank]);
  });
  // [/ranks]
  CHECK(models[0][2].weights == models[1][2].weights);
  CHECK(models[0][2].weights[39] == doctest::Approx(2).epsilon(0.01));
  CHECK(alone[0].weights[0] == doctest::Approx(2).epsilon(0.01));
}

TEST_CASE("tutorial: a step as an object") {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> gradient(8, static_cast<float>(backend.rank()));
    gw::manifest gradients;
    const gw::slot slot = gradients.add("w", gradient);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    // [begin_step]
    auto step = sync.begin_step();
    step.ready(slot);
    const gw::step_result result = step.finish();
    // [/begin_step]
    CHECK(result.finite());
    CHECK(gradient[7] == 0.5F);
  });
}

TEST_CASE("tutorial: results, statistics, and the copy in the arena") {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> gradient(8, 1);
    gw::manifest gradients;
    const gw::slot slot = gradients.add("w", gradient);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend), gw::compression::fp16{});
    const auto skip_update = [] {};
    const auto apply_update = [] {};
    // [results]
    const gw::step_result result = sync.step([&](auto& step) { step.ready(slot); });
    if (result.finite()) {
      apply_update();
    } else {
      skip_update();  // every rank takes the same branch: they agree on the result
    }
    const gw::sync_statistics& done = sync.statistics();
    std::cerr << done.steps << " steps, " << 100 * done.exposed_share() << " % of their time waited for communication, "
              << done.bytes_on_wire << " bytes sent for " << done.bytes_raw << " bytes of gradients\n";
    // [/results]
    CHECK(done.steps == 1);
    CHECK(sync.gradient<float>(slot)[3] == 1);
  });
}

TEST_CASE("tutorial: memory of the arena, and a flat buffer") {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    const auto rank = static_cast<float>(backend.rank());
    // [residence]
    std::vector<float> storage(100);
    std::vector<float> own(100);
    std::span<float> resident(storage);  // a view can be pointed at other memory
    std::vector<float> flat(100);

    gw::manifest gradients;
    const gw::slot first = gradients.add("own", own);
    const gw::slot second = gradients.add("resident", gw::in_arena(resident));
    const gw::slot third = gradients.add_range("flat", flat.data(), flat.size());
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    // `resident` refers to the arena now; it is valid as long as `sync` lives.
    // [/residence]
    for (std::vector<float>* each : {&own, &flat}) {
      each->assign(100, rank);
    }
    for (float& each : resident) {
      each = rank;
    }
    sync.step([&](auto& step) {
      for (const gw::slot slot : {first, second, third}) {
        step.ready(slot);
      }
    });
    CHECK(own[99] == 0.5F);
    CHECK(resident[99] == 0.5F);
    CHECK(flat[99] == 0.5F);
    CHECK(resident.data() != storage.data());
  });
}

TEST_CASE("tutorial: policies, fixed and chosen at run time") {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> gradient(8, 1);
    gw::manifest gradients;
    const gw::slot slot = gradients.add("w", gradient);
    // [policies]
    auto sync = gw::synchronize(std::move(gradients), std::move(backend),  //
                                gw::compression::bf16{},                   // in any order
                                gw::bucketing::fixed_bytes{{.bucket_bytes_max = 4 << 20}});
    // [/policies]
    CHECK(step_with(sync, slot).finite());
  });
  for (const std::string name : {"none", "bf16"}) {
    gw::backend::run_loopback(2, [&](gw::backend::loopback backend) {
      std::vector<float> gradient(8, 1);
      gw::manifest gradients;
      const gw::slot slot = gradients.add("w", gradient);
      // [one_of]
      using chosen_compression = gw::one_of<gw::compression::none, gw::compression::fp16, gw::compression::bf16>;
      chosen_compression compression = gw::compression::none{};
      if (name == "bf16") {
        compression = gw::compression::bf16{};
      }
      auto sync = gw::synchronize(std::move(gradients), std::move(backend), compression);
      // [/one_of]
      CHECK(step_with(sync, slot).finite());
      CHECK(sync.report().find("compression.name = " + name) != std::string::npos);
    });
  }
}

TEST_CASE("tutorial: a trainer that accumulates takes one step for several backward passes") {
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    const std::vector<float> micro_batches = {1, 2, 3, static_cast<float>(backend.rank())};
    std::vector<float> gradient(4);
    gw::manifest gradients;
    const gw::slot slot = gradients.add("w", gradient);
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    const auto add_gradient = [&](float batch) {
      for (float& each : gradient) {
        each += batch;
      }
    };
    std::size_t next = 0;
    // [accumulate]
    gradient.assign(gradient.size(), 0);
    const auto backward = [&](auto& step) {
      add_gradient(micro_batches[next++]);  // the trainer sums
      step.ready(slot);
    };
    while (next + 1 < micro_batches.size()) {
      sync.accumulate(backward);  // sends nothing
    }
    sync.step(backward);
    // [/accumulate]
    CHECK(gradient[3] == 6.5F);
  });
}

TEST_CASE("tutorial: what a rank catches") {
  const gw::testing::watchdog guard("tutorial: what a rank catches");
  gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
    std::vector<float> gradient(4);
    gw::manifest gradients;
    const gw::slot slot = gradients.add("w", gradient);
    const int rank = backend.rank();
    auto sync = gw::synchronize(std::move(gradients), std::move(backend));
    bool caught = false;
    // [catch]
    try {
      sync.step([&](auto& step) {
        if (rank == 1) {
          throw std::runtime_error("the data is bad");
        }
        step.ready(slot);
      });
    } catch (const gw::sync_error& fault) {  // on rank 0
      std::cerr << fault.what() << '\n';     // code(), rank(), step(), bucket() and slots() tell the parts of it
    } catch (const std::runtime_error&) {    // on rank 1: its own exception
    }
    // [/catch]
    try {
      (void)sync.begin_step();
    } catch (const gw::sync_error& fault) {
      caught = fault.code() == gw::errc::aborted && fault.rank() == 1;
    }
    CHECK(caught);
  });
}
