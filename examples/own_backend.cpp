// Your own backend. This one stands on another backend, counts the collectives that pass through it, and makes each take
// longer, as a slow network would: so you see how much of the waiting an overlap policy hides.
// Exits with 0 only if the averages and the counts are right.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/gradweave.hpp>

namespace gw = gradweave;

// [backend]
/// A host backend: one whose collectives are driven by whoever waits for them.
template <gw::host_backend Inner>
class slow_network {
 public:
  using clock = std::chrono::steady_clock;

  // What it offers is known at compile time, and so is what policies ask for.
  static constexpr gw::memory_space space = Inner::space;
  static constexpr gw::execution_model execution = gw::execution_model::host;
  static constexpr gw::collective_set capabilities = Inner::capabilities;

  /// `collectives` is counted up and must outlive the backend.
  slow_network(Inner inner, clock::duration latency, std::size_t& collectives)
      : inner_(std::move(inner)), latency_(latency), collectives_(&collectives) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }

  /// The memory that gradients live in. A backend for other hardware returns memory that the hardware can reach.
  auto allocate_arena(std::size_t bytes) { return inner_.allocate_arena(bytes); }

  /// Begins a collective and returns at once. The next one begins only after poll() has returned true.
  void start(const gw::collective_request& request) {
    ++*collectives_;
    arrival_ = clock::now() + latency_;
    complete_ = false;
    inner_.start(request);
  }

  /// Gets on with it without ever blocking. True once it is complete. Throws gw::sync_error where a peer failed.
  bool poll() {
    complete_ = complete_ || inner_.poll();
    return complete_ && clock::now() >= arrival_;
  }

  /// Sleeps until poll() may get further. A backend throws gw::sync_error here once its deadline has passed.
  void wait() {
    if (complete_) {
      std::this_thread::sleep_until(arrival_);
    } else {
      inner_.wait();
    }
  }

  /// From any thread: makes every rank's present or next collective throw. The first cause wins and is returned.
  gw::failure abort(gw::failure cause) { return inner_.abort(std::move(cause)); }

  /// What this rank has sent since the start.
  std::uint64_t payload_bytes_sent() const { return inner_.payload_bytes_sent(); }

  void describe(gw::description& sink) const {
    sink.add("name", "slow_network");
    sink.add("latency_us", std::chrono::duration_cast<std::chrono::microseconds>(latency_).count());
    sink.nest("inner", inner_);
  }

 private:
  Inner inner_;
  clock::duration latency_;
  std::size_t* collectives_;
  clock::time_point arrival_{};
  bool complete_ = true;
};
// Where a requirement is missed, this line says in one sentence which one.
static_assert(gw::explain_backend<slow_network<gw::backend::loopback>>());
// [/backend]

namespace {

using namespace std::chrono_literals;

void check(bool condition, const char* what) {
  if (!condition) {
    throw std::runtime_error(what);
  }
}

/// Four layers whose gradients take 4 ms each to compute, over a network where a collective takes 3 ms. Returns the time
/// that a step waited for communication.
template <gw::overlap_policy Overlap>
std::chrono::duration<double, std::milli> exposed_time(gw::backend::loopback loopback, Overlap overlap) {
  constexpr std::size_t layers = 4;
  constexpr int steps = 5;
  const int rank = loopback.rank();
  const float mean_rank = static_cast<float>(loopback.size() - 1) / 2;
  std::vector<std::vector<float>> layer(layers, std::vector<float>(1000));
  gw::manifest gradients;
  std::vector<gw::slot> slots;
  for (std::size_t i = 0; i < layers; ++i) {
    slots.push_back(gradients.add("layer " + std::to_string(i), layer[i]));
  }

  // [use]
  std::size_t collectives = 0;
  auto sync = gw::synchronize(std::move(gradients), slow_network(std::move(loopback), 3ms, collectives),
                              gw::bucketing::per_tensor{}, overlap);
  // [/use]

  const std::size_t at_first = collectives;  // sealing the manifest took some
  for (int step = 0; step < steps; ++step) {
    sync.step([&](auto& current) {
      for (std::size_t i = layers; i-- > 0;) {
        std::this_thread::sleep_for(4ms);  // the backward pass of this layer
        layer[i].assign(layer[i].size(), static_cast<float>(rank));
        current.ready(slots[i]);
      }
    });
    check(layer[0][999] == mean_rank && layer[3][0] == mean_rank, "an average is wrong");
  }
  // A step is one collective for each bucket and one for the step record.
  check(collectives - at_first == steps * (layers + 1), "the number of collectives is wrong");
  return sync.statistics().exposed_time / double{steps};
}

}  // namespace

int main() {
  try {
    gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
      const bool speaks = backend.rank() == 0;
      const auto exposed = exposed_time(std::move(backend), gw::overlap::blocking{});
      if (speaks) {
        std::printf("blocking:        a step waits %.1f ms for communication\n", exposed.count());
      }
    });
    gw::backend::run_loopback(2, [](gw::backend::loopback backend) {
      const bool speaks = backend.rank() == 0;
      const auto exposed = exposed_time(std::move(backend), gw::overlap::progress_thread{});
      if (speaks) {
        std::printf("progress_thread: a step waits %.1f ms for communication\n", exposed.count());
      }
    });
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "own_backend: %s\n", fault.what());
    return 1;
  }
}
