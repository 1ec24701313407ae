#include <gradweave/testing/stream_backend_conformance.hpp>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <gradweave/backend/loopback.hpp>
#include <gradweave/error.hpp>
#include <gradweave/host_memory.hpp>
#include <gradweave/testing/watchdog.hpp>

namespace gw = gradweave;
namespace gt = gradweave::testing;

namespace {

enum class defect { none, order, division, silence, zeroes };

/// A stream: a thread with a queue.
class queue {
 public:
  queue() : thread_([this] { run(); }) {}
  queue(const queue&) = delete;
  queue& operator=(const queue&) = delete;
  ~queue() {
    change([&] { is_closing_ = true; });
    thread_.join();
  }

  void add(std::function<void()> work, bool at_front = false) {
    change([&] {
      at_front ? waiting_.push_front(std::move(work)) : waiting_.push_back(std::move(work));
      ++unfinished_;
    });
  }
  void hold(bool is_held) {
    change([&] { is_held_ = is_held; });
  }
  bool is_empty() {
    std::lock_guard lock(mutex_);
    return unfinished_ == 0;
  }

 private:
  template <class Change>
  void change(Change&& body) {
    {
      std::lock_guard lock(mutex_);
      body();
    }
    changed_.notify_all();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return (is_closing_ && waiting_.empty()) || (!is_held_ && !waiting_.empty()); });
      if (waiting_.empty()) {
        return;
      }
      const auto work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      --unfinished_;
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::size_t unfinished_ = 0;
  bool is_held_ = false, is_closing_ = false;
  std::thread thread_;
};

struct queue_rig {
  std::vector<std::unique_ptr<queue>> streams;

  queue* make_stream() {
    streams.push_back(std::make_unique<queue>());
    return streams.back().get();
  }
  void write(queue* on, std::byte* memory, std::span<const std::byte> from) {
    on->add([=] { std::copy(from.begin(), from.end(), memory); });
  }
  void read(queue* on, const std::byte* memory, std::span<std::byte> to) {
    on->add([=] { std::copy_n(memory, to.size(), to.begin()); });
  }
  void hold(queue* on) { on->hold(true); }
  void release(queue* on) { on->hold(false); }
  bool is_reached(queue* on) { return on->is_empty(); }
};

/// Models stream_backend by a loopback for the collectives, and one for control; but for what is defective.
template <defect Defect>
class queued {
 public:
  using stream = queue*;
  static constexpr gw::memory_space space = gw::memory_space::host;
  static constexpr gw::execution_model execution = gw::execution_model::stream;
  static constexpr gw::collective_set capabilities = {gw::collective::all_reduce, gw::collective::all_gather,
                                                      gw::collective::all_to_all};

  queued(gw::backend::loopback payload, gw::backend::loopback control)
      : ranks_(std::make_unique<shared>(std::move(payload))), control_(std::move(control)) {}

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }
  gw::backend::loopback& control() { return control_; }
  gw::host_memory allocate_arena(std::size_t bytes) {
    gw::host_memory made(bytes);
    if (Defect == defect::zeroes && bytes != 0) {
      made.data()[bytes - 1] = std::byte{1};
    }
    return made;
  }
  std::uint64_t payload_bytes_sent() const { return 0; }
  void describe(gw::description& sink) const { sink.add("name", "queued"); }

  void enqueue(gw::collective_request request, queue* on) {
    check();
    if (Defect == defect::division) {
      request.reduce.divisor = 1;
    }
    on->add(
        [this_ranks = ranks_.get(), rank = rank(), request, data = copy(request.data), source = copy(request.source),
         pieces = copy(request.pieces), source_pieces = copy(request.source_pieces)]() mutable {
          request.data = data;
          request.source = source;
          request.pieces = pieces;
          request.source_pieces = source_pieces;
          try {
            gw::run_collective(this_ranks->payload, request);
          } catch (const std::exception& error) {
            std::lock_guard lock(this_ranks->mutex);
            const auto* const told = dynamic_cast<const gw::sync_error*>(&error);
            this_ranks->failed = this_ranks->failed ? *this_ranks->failed
                                 : told != nullptr  ? told->cause()
                                                    : gw::failure{gw::errc::internal, rank, -1, -1, {}, error.what()};
          }
        },
        Defect == defect::order);
  }

  void check() {
    std::lock_guard lock(ranks_->mutex);
    if (ranks_->failed && Defect != defect::silence) {
      throw gw::sync_error(*ranks_->failed);
    }
  }

  gw::failure abort(gw::failure cause) {
    gw::failure story = control_.abort(std::move(cause));
    {
      std::lock_guard lock(ranks_->mutex);
      ranks_->failed = story;
    }
    ranks_->payload.abort(story);
    return story;
  }

 private:
  struct shared {
    explicit shared(gw::backend::loopback own) : payload(std::move(own)) {}
    gw::backend::loopback payload;
    std::mutex mutex;
    std::optional<gw::failure> failed;
  };

  template <class T>
  static std::vector<std::remove_const_t<T>> copy(std::span<T> given) {
    return {given.begin(), given.end()};
  }

  std::unique_ptr<shared> ranks_;
  gw::backend::loopback control_;
};

static_assert(gw::explain_stream_backend<queued<defect::none>>());

template <defect Defect>
gt::conformance_report check(std::vector<int> sizes) {
  return gt::check_stream_backend(
      [](int size, auto&& body) {
        auto payload = gw::backend::make_loopback(size);
        gw::backend::run_loopback(size, [&](gw::backend::loopback control) {
          queue_rig rig;
          auto& own = payload[static_cast<std::size_t>(control.rank())];
          body(queued<Defect>(std::move(own), std::move(control)), rig);
        });
      },
      {.sizes = std::move(sizes)});
}

}  // namespace

TEST_CASE("stream backend kit: passes one that is right, and finds what is not") {
  const gt::watchdog dog("stream backend kit");
  const auto right = check<defect::none>({1, 3});
  CHECK_MESSAGE(right.passed(), to_string(right));
  CHECK(gt::mentions(check<defect::order>({2}), "the result is wrong"));
  CHECK(gt::mentions(check<defect::division>({2}), "the result is wrong"));
  CHECK(gt::mentions(check<defect::silence>({2}), "the next collective must throw"));
  CHECK(gt::mentions(check<defect::zeroes>({1}), "an arena must be zeroed"));
}
