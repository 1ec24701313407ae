// The messages that the docs quote are what the library says. A message counts as quoted where some page holds it, white
// space aside. Set GRADWEAVE_PRINT_MESSAGES to see them all.
#include <gradweave/gradweave.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
using namespace std::chrono_literals;

namespace {

/// A tensor that tells its kind at run time, so that the compiler can't.
struct counting_tensor {
  std::vector<int> counts = std::vector<int>(3);
  void* gradweave_data() { return counts.data(); }
  std::vector<std::size_t> gradweave_shape() const { return {counts.size()}; }
  gw::element_kind gradweave_kind() const { return gw::element_kind::int32; }
};

/// Each run of white space as one space.
std::string squeezed(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string joined;
  for (std::string word; words >> word;) {
    joined += (joined.empty() ? "" : " ") + word;
  }
  return joined;
}

std::string contents(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file, path << " is not there; run this in the root of the repository");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The pages that quote messages.
const std::string& pages() {
  static const std::string text = squeezed(contents("docs/tutorial.md") + contents("docs/reference/errors.md") +
                                           contents("docs/reference/environment.md"));
  return text;
}

/// The string literals of a header that begin with `prefix`; adjacent ones are one.
std::set<std::string> literals(const std::string& header, const std::string& prefix) {
  std::string text = squeezed(contents(header));
  for (std::size_t gap = 0; (gap = text.find("\" \"")) != std::string::npos;) {
    text.erase(gap, 3);
  }
  std::set<std::string> found;
  for (std::size_t at = 0; (at = text.find('"' + prefix, at)) != std::string::npos; ++at) {
    found.insert(text.substr(at + 1, text.find('"', at + 1) - at - 1));
  }
  return found;
}

/// The lines of a page that begin with `prefix`.
std::set<std::string> lines(const std::string& page, const std::string& prefix) {
  std::istringstream text(contents(page));
  std::set<std::string> found;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with(prefix)) {
      found.insert(line);
    }
  }
  return found;
}

/// Without " [file:line]", the position of a broken contract.
std::string without_position(const std::string& text) {
  const std::size_t position = text.rfind(" [");
  return text.ends_with(']') && position != std::string::npos ? text.substr(0, position) : text;
}

void check_quoted(const std::string& message) {
  const std::string sentence = squeezed(without_position(message));
  if (std::getenv("GRADWEAVE_PRINT_MESSAGES") != nullptr) {
    std::printf("%s\n\n", sentence.c_str());
  }
  CHECK_MESSAGE(pages().find(sentence) != std::string::npos, "no page quotes: " << sentence);
}

/// Runs `body` on two ranks and returns what each of them caught.
template <class Body>
std::vector<std::string> caught_by_two(Body&& body, std::chrono::milliseconds timeout = 20s) {
  std::vector<std::string> told(2);
  gw::backend::run_loopback(2,
                            [&](gw::backend::loopback backend) {
                              const auto rank = static_cast<std::size_t>(backend.rank());
                              try {
                                body(std::move(backend));
                              } catch (const std::exception& thrown) {
                                told[rank] = thrown.what();
                              }
                            },
                            {.timeout = timeout});
  return told;
}

/// Both ranks caught this, and a page quotes it.
void check_told_to_both(const std::vector<std::string>& told) {
  CHECK(told[0] == told[1]);
  check_quoted(told[0]);
}

/// A model of two gradients, and a step with a fault on rank 1.
struct small_model {
  std::vector<float> weight = std::vector<float>(12);
  std::vector<float> bias = std::vector<float>(3);
  gw::slot weight_slot{};
  gw::slot bias_slot{};

  gw::manifest make_manifest() {
    gw::manifest made;
    weight_slot = made.add("weight", weight);
    bias_slot = made.add("bias", bias);
    return made;
  }
};

}  // namespace

TEST_CASE("messages: ranks that registered something else") {
  const gw::testing::watchdog guard("messages: seal");
  check_told_to_both(caught_by_two([](gw::backend::loopback backend) {
    std::vector<float> weight(12), bias(3);
    gw::manifest made;
    if (backend.rank() == 0) {
      made.add("weight", weight);
      made.add("bias", bias);
    } else {
      made.add("bias", bias);
      made.add("weight", weight);
    }
    (void)gw::synchronize(std::move(made), std::move(backend));
  }));
  check_told_to_both(caught_by_two([](gw::backend::loopback backend) {
    small_model model;
    const std::size_t mebibytes = backend.rank() == 0 ? 25 : 8;
    (void)gw::synchronize(model.make_manifest(), std::move(backend),
                          gw::bucketing::fixed_bytes{{.bucket_bytes_max = mebibytes << 20}});
  }));
}

TEST_CASE("messages: a gradient that was forgotten") {
  const gw::testing::watchdog guard("messages: forgotten");
  check_told_to_both(caught_by_two([](gw::backend::loopback backend) {
    const int rank = backend.rank();
    small_model model;
    auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
    sync.step([&](auto& step) {
      step.ready(model.weight_slot);
      if (rank == 0) {
        step.ready(model.bias_slot);
      }
    });
  }));
}

TEST_CASE("messages: an exception in the backward pass, and a step that is not finished") {
  const gw::testing::watchdog guard("messages: aborted");
  const auto thrown = caught_by_two([](gw::backend::loopback backend) {
    const int rank = backend.rank();
    small_model model;
    auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
    sync.step([&](auto& step) {
      if (rank == 1) {
        throw std::runtime_error("the data is bad");
      }
      step.ready(model.weight_slot);
      step.ready(model.bias_slot);
    });
  });
  check_quoted(thrown[0]);
  CHECK(thrown[1] == "the data is bad");
  const auto left = caught_by_two([](gw::backend::loopback backend) {
    const int rank = backend.rank();
    small_model model;
    auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
    auto step = sync.begin_step();
    if (rank == 0) {
      step.ready(model.weight_slot);
      step.ready(model.bias_slot);
      step.finish();
    }
  });
  check_quoted(left[0]);
  CHECK(left[1].empty());
}

TEST_CASE("messages: a rank that is gone, and one that does not come") {
  const gw::testing::watchdog guard("messages: gone");
  std::atomic<bool> gave_up{false};
  // Rank 1 seals, and takes no step: it leaves at once, or when rank 0 has given up.
  const auto told_to_rank_0 = [&](bool leaves, std::chrono::milliseconds timeout) {
    gave_up = leaves;
    return caught_by_two(
        [&](gw::backend::loopback backend) {
          const int rank = backend.rank();
          small_model model;
          auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
          if (rank == 1) {
            gave_up.wait(false);
            return;
          }
          try {
            sync.step([&](auto& step) {
              step.ready(model.weight_slot);
              step.ready(model.bias_slot);
            });
          } catch (const gw::sync_error&) {
            gave_up = true;
            gave_up.notify_all();
            throw;
          }
        },
        timeout)[0];
  };
  check_quoted(told_to_rank_0(true, 20s));
  check_quoted(told_to_rank_0(false, 2s));
}

TEST_CASE("messages: ranks that enter different collectives") {
  const gw::testing::watchdog guard("messages: mismatch");
  std::atomic<bool> rank_1_has_entered = false;
  std::atomic<bool> rank_0_has_told = false;  // it is the first to find out
  check_told_to_both(caught_by_two([&](gw::backend::loopback backend) {
    const bool first = backend.rank() == 0;
    std::vector<float> values(first ? 1000 : 900);
    const gw::extent whole{reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float), 0};
    const gw::collective_request request{.operation = first ? gw::collective::all_reduce : gw::collective::broadcast,
                                         .kind = gw::element_kind::float32,
                                         .data = {&whole, 1}};
    const auto set = [](std::atomic<bool>& flag) {
      flag = true;
      flag.notify_all();
    };
    if (first) {
      rank_1_has_entered.wait(false);
      try {
        gw::run_collective(backend, request);
      } catch (const gw::sync_error&) {
        set(rank_0_has_told);
        throw;
      }
    } else {
      backend.start(request);
      backend.poll();
      set(rank_1_has_entered);
      rank_0_has_told.wait(false);
      while (!backend.poll()) {
        backend.wait();
      }
    }
  }));
}

TEST_CASE("messages: a tensor that changed its size") {
  const gw::testing::watchdog guard("messages: resized");
  const auto told = caught_by_two([](gw::backend::loopback backend) {
    const int rank = backend.rank();
    small_model model;
    auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
    model.bias.resize(rank == 1 ? 5 : 3);
    sync.step([&](auto& step) {
      step.ready(model.bias_slot);
      step.ready(model.weight_slot);
    });
  });
  check_quoted(told[1]);
}

TEST_CASE("messages: misuse on one rank") {
  gw::backend::run_loopback(1, [](gw::backend::loopback backend) {
    small_model model;
    auto sync = gw::synchronize(model.make_manifest(), std::move(backend));
    auto step = sync.begin_step();
    step.ready(model.bias_slot);
    const auto message_of = [](auto&& call) {
      try {
        call();
      } catch (const gw::contract_violation& violation) {
        return std::string(violation.what());
      }
      return std::string("nothing was thrown");
    };
    check_quoted(message_of([&] { step.ready(model.bias_slot); }));
    step.ready(model.weight_slot);
    step.finish();
    check_quoted(message_of([&] { step.ready(model.bias_slot); }));
    check_quoted(message_of([] {
      gw::manifest made;
      counting_tensor counts;
      made.add("counts", counts);
    }));
    check_quoted(message_of([&] {
      gw::manifest made;
      made.add("bias", model.bias);
      made.add("bias", model.bias);
    }));
  });
}

TEST_CASE("messages: a malformed environment variable") {
  setenv("DISTRIBUTED_BUCKET_SIZE", "25MB", 1);
  std::string message;
  try {
    (void)gw::bucketing::bucket_caps{}.with_environment();
  } catch (const gw::contract_violation& violation) {
    message = violation.what();
  }
  unsetenv("DISTRIBUTED_BUCKET_SIZE");
  check_quoted(message);
}

TEST_CASE("messages: the reference has the sentences of each explain_..., and no others") {
  struct quoted {
    const char* page;
    std::vector<const char*> headers;
    const char* prefix;
  };
  const std::vector<quoted> all = {
      {"tensor", {"tensor"}, "gradient_tensor: "},
      {"backend", {"backend/concept", "backend/stream_concept"}, "backend: "},
      {"backend", {"synchronizer"}, "synchronizer: "},
      {"transport", {"transport/concept"}, "transport: "},
      {"bucketing", {"bucketing/concept"}, "bucketing: "},
      {"compression", {"compression/concept"}, "codec: "},
      {"compression", {"compression/concept"}, "compression: "},
      {"overlap", {"overlap/concept"}, "overlap: "},
      {"stream_lane", {"overlap/stream_concept"}, "overlap: "},
      {"stream_lane", {"device/device_concept"}, "stream_device: "},
      {"device_kernels", {"device/concept"}, "device_kernels: "},
  };
  for (const quoted& each : all) {
    std::set<std::string> said;
    for (const char* header : each.headers) {
      said.merge(literals(std::string("include/gradweave/") + header + ".hpp", each.prefix));
    }
    const auto written = lines(std::string("docs/reference/") + each.page + ".md", each.prefix);
    CHECK(!said.empty());
    for (const std::string& sentence : said) {
      CHECK_MESSAGE(written.contains(sentence), each.page << ".md lacks: " << sentence);
    }
    for (const std::string& sentence : written) {
      CHECK_MESSAGE(said.contains(sentence), each.page << ".md quotes what is not said: " << sentence);
    }
  }
}
