/// @file
/// Records what a rank does: its last collectives, for a dump, and everything, for a trace.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/diagnostics/clock_offset.hpp>
#include <gradweave/diagnostics/dump.hpp>
#include <gradweave/diagnostics/event.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/diagnostics/signal_watch.hpp>
#include <gradweave/diagnostics/trace_file.hpp>
#include <gradweave/extent.hpp>

namespace gradweave {

/// Collectives are entered one at a time. Its memory is had when it is made; files are written between steps, on a failure
/// and at the end. Thread-safe. It throws nothing: what can't be written is said on stderr.
class recorder {
 public:
  static constexpr std::size_t collectives_kept = 1000;
  static constexpr std::size_t trace_events_max = std::size_t{1} << 16;

  /// None where `options` ask for nothing that has to be recorded.
  static std::unique_ptr<recorder> make(const diagnostics_options& options, int rank, int size) {
    return options.debug == debug_level::detail || !options.trace_prefix.empty()
               ? std::make_unique<recorder>(options, rank, size)
               : nullptr;
  }

  recorder(const diagnostics_options& options, int rank, int size) : rank_(rank), size_(size), ring_(collectives_kept) {
    if (!options.trace_prefix.empty()) {
      trace_.reserve(trace_events_max);
      file_.emplace(options.trace_prefix + "." + std::to_string(rank) + ".json", rank, size);
    }
    if (options.debug == debug_level::detail) {
      dump_path_ = options.dump_prefix + "." + std::to_string(rank) + ".dump";
      watch_.emplace([this] { dump("SIGUSR1"); });
    }
  }

  ~recorder() {
    watch_.reset();
    write_trace();
  }

  /// Where the rank is: what is recorded next belongs there. No bucket is -1.
  void place(std::uint64_t step, std::int32_t bucket) {
    const std::lock_guard lock(mutex_);
    step_ = step;
    bucket_ = bucket;
  }

  void enter(const collective_request& request, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    event& entered = ring_[entered_++ % ring_.size()];
    entered = {.begin_ns = event_time(event::clock::now()),
               .step = step_,
               .collective = number,
               .elements = elements_of(request),
               .bucket = bucket_,
               .operation = request.operation,
               .element = request.kind};
  }

  /// The collective that was entered last.
  void leave() {
    const std::lock_guard lock(mutex_);
    event& left = ring_[(entered_ - 1) % ring_.size()];
    left.end_ns = event_time(event::clock::now());
    keep(left);
  }

  void add(event_kind kind, event::clock::time_point begin, event::clock::time_point end) {
    const std::lock_guard lock(mutex_);
    keep({.begin_ns = event_time(begin), .end_ns = event_time(end), .step = step_, .bucket = bucket_, .kind = kind});
  }

  /// Between steps. `offset_ns`: rank 0's clock less this one's, as the step showed it.
  void step_ended(std::int64_t offset_ns) {
    offset_.add(offset_ns);
    if (trace_.size() > trace_events_max / 2) {
      write_trace();
    }
  }

  /// The job has failed on this rank. The first time counts.
  void failed(const std::string& why) {
    if (!failed_.exchange(true)) {
      dump(why.c_str());
    }
  }

  /// Writes the file, anew each time, in one go: nobody reads half of one.
  void dump(const char* why) noexcept {
    if (dump_path_.empty()) {
      return;
    }
    try {
      const std::lock_guard lock(writing_);
      const std::string unfinished = dump_path_ + ".tmp";
      std::ofstream out(unfinished);
      write_dump(out, contents(why));
      out.close();
      if (!out || std::rename(unfinished.c_str(), dump_path_.c_str()) != 0) {
        std::fprintf(stderr, "gradweave: the dump can't be written to %s\n", dump_path_.c_str());
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "gradweave: there is no dump: %s\n", error.what());
    }
  }

  /// What a dump would hold now.
  rank_dump contents(const char* why) const {
    const std::lock_guard lock(mutex_);
    rank_dump now{rank_, size_, why, event_time(event::clock::now()), {}};
    for (std::size_t i = entered_ - std::min(entered_, ring_.size()); i < entered_; ++i) {
      now.events.push_back(ring_[i % ring_.size()]);
    }
    return now;
  }

 private:
  /// None for an all-to-all, where ranks have different numbers.
  static std::uint64_t elements_of(const collective_request& request) {
    return request.operation == collective::all_to_all ? 0 : total_bytes(request.data) / element_bytes(request.kind);
  }

  void keep(const event& of) {
    if (file_ && trace_.size() < trace_events_max) {
      trace_.push_back(of);
    }
  }

  void write_trace() noexcept {
    if (!file_) {
      return;
    }
    try {
      const std::lock_guard lock(mutex_);
      const std::int64_t offset_ns = offset_.ns();
      std::ranges::for_each(trace_, [&](const event& each) { file_->write(each, offset_ns); });
      trace_.clear();
      file_->flush();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "gradweave: the trace ends here: %s\n", error.what());
    }
  }

  int rank_;
  int size_;
  std::string dump_path_;
  mutable std::mutex mutex_;
  std::uint64_t step_ = 0;
  std::int32_t bucket_ = -1;
  std::size_t entered_ = 0;  // collectives, since the start
  std::vector<event> ring_;
  std::vector<event> trace_;
  clock_offset offset_;
  std::atomic<bool> failed_{false};
  std::mutex writing_;  // a dump
  std::optional<trace_file> file_;
  std::optional<signal_watch> watch_;  // last: its thread uses all of the above
};

}  // namespace gradweave
