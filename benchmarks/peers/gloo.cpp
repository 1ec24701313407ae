// Gloo's part in //benchmarks:all_reduce: its best algorithm for each size, over its TCP transport on the loopback interface.
// Usage: peer_gloo FOLDER RANK SIZE
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gloo/allreduce.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include "benchmarks/peers/serve.hpp"

namespace {

using algorithms = gloo::detail::AllreduceOptionsImpl;

class gloo_library {
 public:
  gloo_library(const std::string& folder, int rank, int size) : rank_(rank), size_(size), store_(folder) {
    gloo::transport::tcp::attr place;
    place.hostname = "127.0.0.1";
    device_ = gloo::transport::tcp::CreateDevice(place);
    connect();
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  void barrier() {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

  /// Tries all of its algorithms and keeps the fastest, as rank 0 measured it.
  std::string prepare(float* data, std::size_t elements) {
    connect();
    candidates_ = {{"ring", [=, this] { all_reduce(data, elements, algorithms::RING); }},
                   {"bcube", [=, this] { all_reduce(data, elements, algorithms::BCUBE); }},
                   {"old_ring", runner<gloo::AllreduceRing<float>>(data, elements)},
                   {"ring_chunked", runner<gloo::AllreduceRingChunked<float>>(data, elements)},
                   {"halving_doubling", runner<gloo::AllreduceHalvingDoubling<float>>(data, elements)},
                   {"old_bcube", runner<gloo::AllreduceBcube<float>>(data, elements)}};
    std::array<double, 2> best = {0, std::numeric_limits<double>::max()};
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      candidates_[i].second();
      barrier();
      const double time = gradweave::bench::time_of(10, candidates_[i].second);
      best = time < best[1] ? std::array{static_cast<double>(i), time} : best;
    }
    gloo::BroadcastOptions options(context_);
    options.setRoot(0);
    options.setOutput(best.data(), 1);
    gloo::broadcast(options);
    chosen_ = static_cast<std::size_t>(best[0]);
    return candidates_[chosen_].first;
  }

  void reduce() { candidates_[chosen_].second(); }

 private:
  /// Each size has connections of its own: over those of the size before, four ranks hung from 4 MiB on.
  void connect() {
    auto context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    gloo::rendezvous::PrefixStore part(std::to_string(contexts_.size()), store_);
    context->connectFullMesh(part, device_);
    context_ = context;
    contexts_.push_back(context);
  }

  void all_reduce(float* data, std::size_t elements, algorithms::Algorithm algorithm) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm);
    options.setOutput(data, elements);
    options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  /// Of the older interface, which keeps its buffers from call to call.
  template <class Algorithm>
  std::function<void()> runner(float* data, std::size_t elements) {
    auto made = std::make_shared<Algorithm>(context_, std::vector<float*>{data}, static_cast<int>(elements));
    return [made] { made->run(); };
  }

  int rank_;
  int size_;
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::transport::Device> device_;
  std::vector<std::shared_ptr<gloo::Context>> contexts_;  // ended with the process, when nobody uses them any more
  std::shared_ptr<gloo::Context> context_;
  std::vector<std::pair<std::string, std::function<void()>>> candidates_;
  std::size_t chosen_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: peer_gloo FOLDER RANK SIZE; //benchmarks:all_reduce --peer gloo starts it\n");
    return 2;
  }
  try {
    gloo_library library(arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]));
    return gradweave::bench::serve(library, arguments[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gloo, rank %s: %s\n", arguments[2], error.what());
    return 1;
  }
}
