/// @file
/// Events as a Chrome trace, which Perfetto and chrome://tracing show: a JSON array, one event a line.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/diagnostics/event.hpp>

namespace gradweave {

/// A rank is a process of the trace, with two threads: the caller, and the lane. Each collective in which all ranks hear of
/// all others has arrows from each rank's beginning to the next rank's end. Where the file can't be written, it says so on
/// stderr, once, and that was it. A file without its last line is a trace as well: the process was killed.
class trace_file {
 public:
  trace_file(std::string path, int rank, int size) : path_(std::move(path)), rank_(rank), size_(size) {}
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  ~trace_file() {
    if (out_ != nullptr) {
      std::fputs("\n]\n", out_.get());
    }
  }

  /// `offset_ns` is added to all times.
  void write(const event& of, std::int64_t offset_ns) {
    if (!open()) {
      return;
    }
    const std::string begin = microseconds(of.begin_ns + offset_ns);
    const std::string end = microseconds(of.end_ns + offset_ns);
    const std::string place =
        "\"args\":{\"step\":" + std::to_string(of.step) + ",\"bucket\":" + std::to_string(of.bucket);
    const bool by_caller = of.kind == event_kind::exposed;
    if (of.kind == event_kind::wait) {
      // Buckets wait beside each other, so these are no slices of one thread.
      const std::string id = "\"cat\":\"bucket\",\"id\":\"" + std::to_string(rank_) + "." + std::to_string(of.step) +
                             "." + std::to_string(of.bucket) + "\"";
      line("ready", "i", 0, begin, "\"s\":\"t\"," + place + "}");
      line("wait", "b", 1, begin, id + "," + place + "}");
      line("wait", "e", 1, end, id);
      return;
    }
    std::string rest = "\"dur\":" + microseconds(of.end_ns - of.begin_ns) + "," + place;
    if (of.kind == event_kind::transfer) {
      rest += ",\"collective\":" + std::to_string(of.collective) + ",\"operation\":\"" +
              std::string(to_string(of.operation)) + "\",\"elements\":" + std::to_string(of.elements);
    }
    line(to_string(of.kind), "X", by_caller ? 0 : 1, begin, rest + "}");
    if (of.kind == event_kind::transfer && size_ > 1 && all_hear_of_all(of.operation)) {
      line("collective", "s", 1, begin, flow(of.collective, rank_));
      line("collective", "f", 1, end, "\"bp\":\"e\"," + flow(of.collective, (rank_ + size_ - 1) % size_));
    }
  }

  void flush() {
    if (out_ != nullptr) {
      std::fflush(out_.get());
    }
  }

 private:
  /// Nobody leaves before everybody has entered: an arrow from a beginning to an end never points back.
  static constexpr bool all_hear_of_all(collective operation) {
    return operation == collective::all_reduce || operation == collective::all_gather ||
           operation == collective::all_to_all || operation == collective::reduce_scatter;
  }

  static std::string microseconds(std::int64_t ns) {
    const auto positive = static_cast<unsigned long long>(std::max<std::int64_t>(ns, 0));
    char text[32];  // no floating point: its format depends on the locale
    std::snprintf(text, sizeof text, "%llu.%03llu", positive / 1000, positive % 1000);
    return text;
  }

  /// The arrow that begins at rank `from`.
  std::string flow(std::uint64_t number, int from) const {
    return "\"cat\":\"collective\",\"id\":" +
           std::to_string(number * static_cast<std::uint64_t>(size_) + static_cast<std::uint64_t>(from));
  }

  bool open() {
    if (out_ == nullptr && !failed_) {
      out_.reset(std::fopen(path_.c_str(), "w"));
      failed_ = out_ == nullptr;
      if (failed_) {
        std::fprintf(stderr, "gradweave: the trace can't be written to %s\n", path_.c_str());
      } else {
        std::fprintf(out_.get(),
                     "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d\"}}", rank_,
                     rank_);
        for (const auto* thread : {"caller", "lane"}) {
          std::fprintf(out_.get(),
                       ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                       rank_, *thread == 'l' ? 1 : 0, thread);
        }
      }
    }
    return !failed_;
  }

  void line(std::string_view name, const char* phase, int thread, const std::string& at, const std::string& rest) {
    std::fprintf(out_.get(), ",\n{\"name\":\"%.*s\",\"ph\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%s,%s}",
                 static_cast<int>(name.size()), name.data(), phase, rank_, thread, at.c_str(), rest.c_str());
  }

  struct closer {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string path_;
  int rank_;
  int size_;
  bool failed_ = false;
  std::unique_ptr<std::FILE, closer> out_;
};

}  // namespace gradweave
