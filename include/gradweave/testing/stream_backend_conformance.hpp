/// @file
/// The conformance kit of stream backends. docs/reference/nccl.md has what it checks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/reduction.hpp>
#include <gradweave/testing/backend_conformance.hpp>
#include <gradweave/testing/collective_checks.hpp>
#include <gradweave/testing/conformance.hpp>

namespace gradweave::testing {

/// What the kit needs of a rank's device: a stream that lives as long as the rig; copies to and from the backend's memory
/// when the stream gets there, before which the host's bytes stay; a stream that begins nothing until it is released;
/// whether all on it is over, asked without waiting.
template <class R, class Stream>
concept stream_rig =
    requires(R& rig, Stream on, std::byte* memory, std::span<const std::byte> from, std::span<std::byte> to) {
      { rig.make_stream() } -> std::same_as<Stream>;
      rig.write(on, memory, from);
      rig.read(on, memory, to);
      rig.hold(on);
      rig.release(on);
      { rig.is_reached(on) } -> std::same_as<bool>;
    };

struct stream_conformance_options {
  std::vector<int> sizes = {1, 2, 3, 4};
  std::uint64_t seed = 1;
  /// Whether it reduces such elements; none: all.
  std::function<bool(element_kind, const reduction&)> reduces = {};
  /// Whether it compares collectives before they are launched.
  bool compares = false;
};

namespace detail {

/// Returns once the stream has got through. Throws sync_error as check() does.
template <stream_backend Backend, class Rig>
void await_stream(Backend& backend, Rig& rig, typename Backend::stream on) {
  while (!rig.is_reached(on)) {
    backend.check();
    std::this_thread::yield();
  }
}

/// Memory of the device for one collective after another, and what is to lie there.
template <stream_backend Backend, class Rig>
class stream_bench {
 public:
  stream_bench(Backend& backend, Rig& rig) : backend_(backend), rig_(rig), on_(rig.make_stream()) {}

  typename Backend::stream stream() const { return on_; }

  /// The same request in memory of the device, enqueued between copies of what it refers to. In an all_to_all each buffer lies
  /// in one piece there.
  void enqueue(const collective_request& request) {
    const bool is_cut = request.operation != collective::all_to_all;
    image_.clear();
    data_ = place(request.data, is_cut);
    source_ = place(request.source, false);
    image_.resize(image_.size() + gap_bytes);
    if (image_.size() > bytes_) {
      arena_.reset();
      arena_.emplace(backend_.allocate_arena(bytes_ = 2 * image_.size()));
    }
    collective_request on_device = request;
    const std::vector<extent> data = moved(data_), source = moved(source_);
    on_device.data = data;
    on_device.source = source;
    rig_.write(on_, arena_->data(), image_);
    backend_.enqueue(on_device, on_);
    result_.resize(image_.size());
    rig_.read(on_, arena_->data(), result_);
  }

  /// Once the stream has got through: the results, in the memory of the host that `request` names. Whether nothing else was
  /// written.
  bool take(const collective_request& request) {
    std::vector<bool> is_inside(result_.size());
    std::size_t copied = 0;
    for (const extent& piece : data_) {
      const auto begin = result_.begin() + static_cast<std::ptrdiff_t>(piece.offset);
      std::fill_n(is_inside.begin() + static_cast<std::ptrdiff_t>(piece.offset), piece.bytes, true);
      for_each_piece(request.data, copied, piece.bytes, [&, from = begin](std::byte* to, std::size_t bytes) mutable {
        std::copy_n(from, bytes, to);
        from += static_cast<std::ptrdiff_t>(bytes);
      });
      copied += piece.bytes;
    }
    for (std::size_t i = 0; i < result_.size(); ++i) {
      if (!is_inside[i] && result_[i] != image_[i]) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t gap_bytes = 64;

  /// Where the buffer's pieces begin in the image, as offsets.
  std::vector<extent> place(std::span<const extent> buffer, bool is_cut) {
    std::vector<extent> placed;
    for (const extent& piece : buffer) {
      if (is_cut || placed.empty()) {
        image_.resize((image_.size() + gap_bytes) / gap_bytes * gap_bytes, std::byte{0xc5});
        placed.push_back({nullptr, 0, image_.size()});
      }
      placed.back().bytes += piece.bytes;
      image_.insert(image_.end(), piece.memory, piece.memory + piece.bytes);
    }
    return placed;
  }

  std::vector<extent> moved(const std::vector<extent>& placed) const {
    std::vector<extent> buffer;
    for (const extent& piece : placed) {
      buffer.push_back({arena_->data() + piece.offset, piece.bytes, total_bytes(buffer)});
    }
    return buffer;
  }

  using arena_type = decltype(std::declval<Backend&>().allocate_arena(0));

  Backend& backend_;
  Rig& rig_;
  typename Backend::stream on_;
  std::optional<arena_type> arena_;
  std::size_t bytes_ = 0;
  std::vector<std::byte> image_;
  std::vector<std::byte> result_;
  std::vector<extent> data_, source_;
};

template <stream_backend Backend, class Rig>
backend_driver drive(Backend& backend, Rig& rig, stream_bench<Backend, Rig>& bench, conformance_recorder& recorder,
                     const stream_conformance_options& options) {
  return {backend.rank(),
          backend.size(),
          Backend::capabilities,
          [&](const collective_request& request) {
            bench.enqueue(request);
            await_stream(backend, rig, bench.stream());
            recorder.check(bench.take(request), "a collective wrote to memory outside of its extents");
          },
          [&backend] { return backend.payload_bytes_sent(); },
          recorder,
          options.reduces,
          2};
}

template <stream_backend Backend, class Rig>
void check_stream_arena(Backend& backend, Rig& rig, conformance_recorder& recorder) {
  const auto on = rig.make_stream();
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}}) {
    auto arena = backend.allocate_arena(bytes);
    std::byte* const memory = arena.data();
    recorder.check(memory != nullptr || bytes == 0, "an arena must have memory");
    recorder.check(reinterpret_cast<std::uintptr_t>(memory) % 64 == 0, "an arena must begin on a cache line");
    std::vector<std::byte> seen(bytes, std::byte{1});
    rig.read(on, memory, seen);
    await_stream(backend, rig, on);
    recorder.check(std::all_of(seen.begin(), seen.end(), [](std::byte each) { return each == std::byte{0}; }),
                   "an arena must be zeroed");
    const auto moved = std::move(arena);
    recorder.check(moved.data() == memory, "an arena's memory must stay where it is when its owner is moved");
  }
}

/// As a lane does: enqueues, exchanges something by control, which shows who is gone, and waits for the stream. What goes wrong
/// is told to all.
template <stream_backend Backend, class Rig>
collective_outcome attempt(Backend& backend, Rig& rig, stream_bench<Backend, Rig>& bench,
                           const collective_request& request) {
  try {
    bench.enqueue(request);
    probe_collective exchange = any_collective();
    backend.control().start(exchange.make(backend.size()));
    while (!backend.control().poll()) {
      backend.check();
      std::this_thread::yield();
    }
    await_stream(backend, rig, bench.stream());
    return {};
  } catch (const sync_error& error) {
    failure told = backend.abort(error.cause());
    await([&] { return rig.is_reached(bench.stream()); });  // or it would work on memory that is given back
    return {true, std::move(told)};
  }
}

/// Ranks' streams are held in turn: nobody may wait for that on the host, no other rank may get through meanwhile, and all is
/// as if it had not been.
template <stream_backend Backend, class Rig>
void check_held_streams(Backend& backend, Rig& rig, std::atomic<int>& enqueued, conformance_recorder& recorder) {
  const std::string here = std::to_string(backend.size()) + " ranks, one stream held: ";
  const auto on = rig.make_stream();
  auto arena = backend.allocate_arena(sizeof(float));
  const extent whole{arena.data(), sizeof(float), 0};
  const collective_request all_reduce{
      .operation = collective::all_reduce, .kind = element_kind::float32, .data = {&whole, 1}};
  for (int held = 0; held < backend.size(); ++held) {
    const float first = 1, second = static_cast<float>(backend.rank() + 1);
    float squared = 0, sum = 0;
    if (backend.rank() == held) {
      rig.hold(on);
    }
    rig.write(on, arena.data(), std::as_bytes(std::span(&first, 1)));
    backend.enqueue(all_reduce, on);
    backend.enqueue(all_reduce, on);
    rig.read(on, arena.data(), std::as_writable_bytes(std::span(&squared, 1)));
    rig.write(on, arena.data(), std::as_bytes(std::span(&second, 1)));
    backend.enqueue(all_reduce, on);
    rig.read(on, arena.data(), std::as_writable_bytes(std::span(&sum, 1)));
    enqueued.fetch_add(1);
    await([&] {
      return enqueued.load() >= (held + 1) * backend.size();
    });  // a rank that waits for its stream never comes
    recorder.check(enqueued.load() >= (held + 1) * backend.size(), here + "enqueue waited for the device");
    recorder.check(!rig.is_reached(on), here + "a rank got through without the held one");
    probe_collective exchange = any_collective();
    run_collective(backend.control(), exchange.make(backend.size()));
    if (backend.rank() == held) {
      rig.release(on);
    }
    await_stream(backend, rig, on);
    const auto n = static_cast<float>(backend.size());
    recorder.check(squared == n * n, here + "collectives of one stream must run one after another");
    recorder.check(sum == n * (n + 1) / 2, here + "a collective must run after what is on the stream before it");
  }
}

/// Runs `body(backend, rig)` on each rank, as run_ranks does.
template <class Run, class Body>
std::vector<collective_outcome> run_stream_ranks(Run&& run, int size, conformance_recorder& recorder,
                                                 const std::string& what, Body&& body) {
  std::vector<collective_outcome> outcomes(static_cast<std::size_t>(size));
  recorder.part(what, [&] {
    run(size, [&](auto backend, auto& rig) {
      recorder.part(what, [&] { outcomes[static_cast<std::size_t>(backend.rank())] = body(backend, rig); });
    });
  });
  return outcomes;
}

/// Whether `told` is the cause `given`, which may have more words around it once there are groups.
inline bool tells(const failure& told, const failure& given) {
  failure bare = told;
  bare.detail = told.detail.find(given.detail) == std::string::npos ? told.detail : given.detail;
  return same_cause(bare, given);
}

/// The last rank does not enter a collective that the others wait in on their streams: it aborts, or leaves. The others are told,
/// and their streams get past.
template <class Run>
void check_absence(Run&& run, int size, bool leaves, conformance_recorder& recorder) {
  const std::string what = std::to_string(size) + " ranks, the last one " + (leaves ? "leaves" : "aborts");
  const failure first{errc::aborted, size - 1, 5, 2, {"slot"}, "the first cause"};
  const auto outcomes = run_stream_ranks(run, size, recorder, what, [&](auto& backend, auto& rig) {
    if (backend.rank() == size - 1) {
      if (leaves) {
        return collective_outcome{};
      }
      failure told;
      std::thread([&] { told = backend.abort(first); }).join();
      recorder.check(tells(told, first), what + ": abort() must return its own cause if first");
      return collective_outcome{true, backend.abort({errc::internal, 0, -1, -1, {}, "too late"})};
    }
    stream_bench bench(backend, rig);
    const collective_outcome told = attempt(backend, rig, bench, any_collective().make(size));
    recorder.check(rig.is_reached(bench.stream()), what + ": streams must get past what can't end");
    try {
      bench.enqueue(any_collective().make(size));
      recorder.fail(what + ": the next collective must throw");
    } catch (const sync_error& error) {
      recorder.check(same_cause(error.cause(), told.cause), what + ": the next collective must throw the same");
    }
    await([&] { return rig.is_reached(bench.stream()); });
    return told;
  });
  bool named = !leaves || size == 1;
  for (std::size_t r = 0; r < outcomes.size() - (leaves ? 1 : 0); ++r) {
    const failure& cause = outcomes[r].cause;
    recorder.check(outcomes[r].threw, [&] { return what + ": a rank got a result"; });
    recorder.check(leaves || tells(cause, first), [&] { return what + ": a rank was told " + to_string(cause); });
    named = named || (cause.code == errc::peer_lost && cause.rank == size - 1);
  }
  recorder.check(named, [&] { return what + ": no rank says peer_lost and names it"; });
}

template <class Run>
void check_stream_mismatches(Run&& run, int size, conformance_recorder& recorder) {
  for (const mismatch& each : mismatches()) {
    const std::string what = std::to_string(size) + " ranks, one enters another " + std::string(each.what);
    const auto outcomes = run_stream_ranks(run, size, recorder, what, [&](auto& backend, auto& rig) {
      probe_collective mine = backend.rank() == size - 1 ? each.theirs : each.ours;
      stream_bench bench(backend, rig);
      return attempt(backend, rig, bench, mine.make(size));
    });
    for (const collective_outcome& outcome : outcomes) {
      recorder.check(outcome.threw && outcome.cause.code == errc::collective_mismatch,
                     [&] { return what + ": a rank was not told collective_mismatch"; });
    }
  }
}

}  // namespace detail

/// Checks a stream backend. `run(size, body)` must call `body(backend, rig)` on `size` ranks of one job, each on a thread of this
/// process with its backend by value and a stream_rig of its device that outlives it, and return when all have returned.
/// Checks what check_backend does, but for payload; and that nobody waits for a stream that is held, that collectives keep to
/// their stream's order, and that streams get past an abort and a rank that leaves. A backend that hangs makes it hang: run it
/// under a watchdog.
template <class Run>
conformance_report check_stream_backend(Run&& run, const stream_conformance_options& options = {}) {
  conformance_recorder recorder;
  for (const int size : options.sizes) {
    const std::string here = std::to_string(size) + " ranks: ";
    std::atomic<int> enqueued{0};
    detail::run_stream_ranks(run, size, recorder, here + "collectives", [&](auto& backend, auto& rig) {
      static_assert(stream_rig<std::remove_reference_t<decltype(rig)>,
                               typename std::remove_reference_t<decltype(backend)>::stream>);
      recorder.check(
          backend.size() == size && backend.control().size() == size && backend.control().rank() == backend.rank(),
          here + "rank() and size() must be those of control()");
      recorder.check(!entries_of(backend).empty() && entries_of(backend).front().key == "name",
                     here + "describe() must begin with the entry 'name'");
      detail::check_stream_arena(backend, rig, recorder);
      detail::stream_bench bench(backend, rig);
      const detail::backend_driver driver = detail::drive(backend, rig, bench, recorder, options);
      detail::check_collectives(driver);
      detail::check_back_to_back(driver, options.seed);
      detail::check_held_streams(backend, rig, enqueued, recorder);
      return detail::collective_outcome{};
    });
    detail::check_absence(run, size, false, recorder);
    if (size > 1) {
      detail::check_absence(run, size, true, recorder);
    }
    if (size > 1 && options.compares) {
      detail::check_stream_mismatches(run, size, recorder);
    }
  }
  return recorder.report();
}

}  // namespace gradweave::testing
